package observation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/internal/strictyaml"
	"github.com/keypost/keypost/keystore"
)

// The identity of observation documents.
const (
	APIVersion = keystore.APIVersion
	Kind       = "Observation"
)

// Store keeps records in a backend that holds nothing else. It is safe for concurrent use, also by several processes.
type Store struct{ backend keystore.Backend }

// NewStore returns the store on top of b.
func NewStore(b keystore.Backend) *Store { return &Store{b} }

// document is the stored form: a Kubernetes-style manifest, as that of a key set.
type document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name keystore.Name `json:"name"`
	} `json:"metadata"`
	Spec Record `json:"spec"`
}

// name returns under which name the record of an issuer URL and vantage is stored: that of the key set, so that people
// find it, and a hash, so that each has its own.
func name(n keystore.Name, p Subject) keystore.Name {
	sum := sha256.Sum256([]byte(string(n) + "\n" + p.Issuer + "\n" + p.Vantage)) // the name too: it is cut below
	const room = 63 - 1 - 16
	return keystore.Name(string(n[:min(len(n), room)]) + "-" + hex.EncodeToString(sum[:8]))
}

// Load returns the record of an issuer URL and vantage of a key set. The error wraps [keystore.ErrNotFound] if nothing was
// recorded yet.
func (st *Store) Load(ctx context.Context, n keystore.Name, p Subject) (Record, error) {
	r, _, err := st.load(ctx, n, p)
	return r, err
}

func (st *Store) load(ctx context.Context, n keystore.Name, p Subject) (Record, keystore.Revision, error) {
	r, rev, err := st.read(ctx, name(n, p))
	if err != nil {
		return Record{}, rev, fmt.Errorf("load observation of %s: %w", p, err)
	}
	return r, rev, nil
}

// read returns the record that a document is. The error is a [*DamagedError] if it is none, or that of another document.
func (st *Store) read(ctx context.Context, document keystore.Name) (r Record, rev keystore.Revision, err error) {
	data, rev, err := st.backend.Get(ctx, document)
	if err != nil && !keystore.OfDocument(err) {
		return Record{}, rev, err
	}
	if err == nil {
		r, err = parse(data)
	}
	if err == nil && document != name(r.KeySet, r.Subject()) {
		err = fmt.Errorf("its record is about key set %q and %s", r.KeySet, r.Subject())
	}
	if err != nil {
		return Record{}, rev, &DamagedError{document, err}
	}
	return r, rev, nil
}

// DamagedError reports a document that is there and is not a record, or another one's.
type DamagedError struct {
	Document keystore.Name
	Err      error
}

func (e *DamagedError) Error() string { return fmt.Sprintf("document %s: %v", e.Document, e.Err) }

func (e *DamagedError) Unwrap() error { return e.Err }

func parse(data []byte) (Record, error) {
	asJSON, err := strictyaml.ToJSON(data, keystore.MaxDocument)
	if err != nil {
		return Record{}, err
	}
	var d document
	if err := json.Unmarshal(asJSON, &d); err != nil {
		return Record{}, errors.New("it does not fit the form of an observation")
	}
	if d.APIVersion != APIVersion || d.Kind != Kind {
		return Record{}, fmt.Errorf("it is apiVersion %q, kind %q, not %q, %q", d.APIVersion, d.Kind, APIVersion, Kind)
	}
	return d.Spec, nil
}

// Required returns the places from which keys of s must have been seen before they may sign: each issuer URL from each
// vantage that the policy names, or from the unnamed one; none where nobody reads the documents.
func Required(s keystore.KeySet) []Subject {
	if s.Policy().Reach == keystore.ReachCopies {
		return nil
	}
	vantages := s.Policy().ObserveFrom
	if len(vantages) == 0 {
		vantages = []string{""}
	}
	var all []Subject
	for _, u := range s.Issuers() {
		for _, v := range vantages {
			all = append(all, Subject{u.String(), v})
		}
	}
	return all
}

// Of returns every record of a key set, from whatever vantage. A damaged one is an error.
func (st *Store) Of(ctx context.Context, n keystore.Name) (all []Record, err error) {
	list, err := st.backend.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list observations: %w", err)
	}
	for _, document := range slices.Sorted(maps.Keys(list)) {
		if !mayBeOf(n, document) {
			continue
		}
		r, _, err := st.read(ctx, document)
		if err != nil {
			return nil, fmt.Errorf("load observation %s: %w", document, err)
		}
		if r.KeySet == n {
			all = append(all, r)
		}
	}
	return all, nil
}

// mayBeOf reports whether a document has the name of a record of the key set n.
func mayBeOf(n, document keystore.Name) bool {
	const hash = 16
	example := name(n, Subject{})
	return len(document) == len(example) && document[:len(example)-hash] == example[:len(example)-hash]
}

// attempts bounds how often Add starts again because another observer was faster.
const attempts = 8

// Add records a look and returns the record with it. A damaged record is an error, never a reason to begin anew.
func (st *Store) Add(ctx context.Context, n keystore.Name, p Subject, l Look) (Record, error) {
	if p.Vantage != "" && !dnsname.IsLabel(p.Vantage) {
		return Record{}, fmt.Errorf("record observation of %s: a vantage is named with lower-case letters, digits and hyphens, at most 63", p)
	}
	return st.change(ctx, n, p, func(r Record) Record { return r.With(l) })
}

// Mark records the version of a key set that was read from the store, if it is the newest so far, and returns the record. With force
// it is the newest, whatever is recorded.
func (st *Store) Mark(ctx context.Context, p Subject, s keystore.KeySet, force bool) (Record, error) {
	mark := func(r Record) Record {
		if force {
			r.Newest = nil
		}
		return r.WithVersion(s)
	}
	r, err := st.Load(ctx, s.Name(), p)
	if err != nil && !errors.Is(err, keystore.ErrNotFound) || err == nil && !force && mark(r).Newest == r.Newest {
		return r, err
	}
	return st.change(ctx, s.Name(), p, mark)
}

// AddFailure records that an upload could not be brought up to date. What was read before stays, and the next look takes the
// failure away.
func (st *Store) AddFailure(ctx context.Context, n keystore.Name, p Subject, f Failed) error {
	_, err := st.change(ctx, n, p, func(r Record) Record {
		r.Failed = &f
		return r
	})
	return err
}

// AddFetched records when a relying party, by its name in the policy, shows that it last fetched the keys.
func (st *Store) AddFetched(ctx context.Context, n keystore.Name, party string, f Fetched) error {
	_, err := st.change(ctx, n, Subject{Issuer: party}, func(r Record) Record {
		r.Fetched = &f
		return r
	})
	return err
}

// change stores what step makes of a record. It may call step again with a newer one.
func (st *Store) change(ctx context.Context, n keystore.Name, p Subject, step func(Record) Record) (Record, error) {
	var err error
	for range attempts {
		var was Record
		var rev keystore.Revision
		was, rev, err = st.load(ctx, n, p)
		if errors.Is(err, keystore.ErrNotFound) {
			was, rev, err = Record{KeySet: n, Issuer: p.Issuer, Vantage: p.Vantage}, "", nil
		}
		if err != nil {
			return Record{}, err
		}
		now := step(was)
		if err = st.put(ctx, rev, now); err == nil {
			return now, nil
		}
		// A look that was stored although the answer was lost is added twice without harm: runs do not begin earlier.
		if !errors.Is(err, keystore.ErrConflict) {
			break
		}
	}
	return Record{}, fmt.Errorf("record observation of %s: %w", p, err)
}

func (st *Store) put(ctx context.Context, old keystore.Revision, r Record) error {
	d := document{APIVersion: APIVersion, Kind: Kind, Spec: r}
	d.Metadata.Name = name(r.KeySet, r.Subject())
	data, err := yaml.Marshal(d)
	if err != nil {
		return err
	}
	_, err = st.backend.Put(ctx, d.Metadata.Name, old, data)
	return err
}
