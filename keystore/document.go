package keystore

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/keypost/keypost/internal/keypem"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore/manifest"
)

// The identity of key set documents, and their largest size in bytes (package manifest).
const (
	APIVersion  = manifest.APIVersion
	Kind        = manifest.Kind
	MaxDocument = manifest.MaxSize
)

// document is the stored form: a Kubernetes-style manifest, the same text in every backend.
type document struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       body     `json:"spec"`
}

type metadata struct {
	Name        Name              `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type body struct {
	Generation  int64         `json:"generation"`
	Issuers     []string      `json:"issuers"` // in documents only, as Keys
	Keys        []keyDocument `json:"keys"`
	Gone        []Gone        `json:"gone,omitempty"`
	Policy      Policy        `json:"policy,omitzero"`
	Rotation    *Rotation     `json:"rotation,omitempty"`
	History     []Event       `json:"history,omitempty"`
	WithdrawnAt time.Time     `json:"withdrawnAt,omitzero"`
	Dev         bool          `json:"dev,omitempty"`
}

type keyDocument struct {
	Kid         KeyID     `json:"kid"`
	ImportedKid bool      `json:"importedKid,omitempty"` // the kid is not the computed one
	PublicKey   string    `json:"publicKey"`             // PKIX PEM
	Alg         string    `json:"alg"`
	State       State     `json:"state"`
	PublishedAt time.Time `json:"publishedAt"`
	ObservedAt  time.Time `json:"observedAt,omitzero"`
	PromotedAt  time.Time `json:"promotedAt,omitzero"`
	RetiredAt   time.Time `json:"retiredAt,omitzero"`
}

// largeDocument is what is parsed one at a time: a document of a megabyte takes two hundred while it is parsed, and who may write one
// key set must not use up the memory of all.
const largeDocument = 64 << 10

var parsingLarge sync.Mutex //nolint:gochecknoglobals // it holds nothing

// Parse reads the document stored under name. The error is a [*BrokenError] with the issuer URLs of the document, as far as they are
// known: none of them is free. Once it is repaired, two key sets would have the URL, and a server that starts then serves neither.
func Parse(name Name, data []byte) (KeySet, error) {
	if len(data) > largeDocument {
		parsingLarge.Lock()
		defer parsingLarge.Unlock()
	}
	s, h, err := parse(name, data)
	if err == nil {
		return s, nil
	}
	reason := ReasonBroken
	switch {
	case errors.Is(err, manifest.ErrNewerVersion):
		reason = ReasonNewerVersion
	case errors.Is(err, ErrGoneReturned):
		reason = ReasonGoneReturned
	}
	return KeySet{}, &BrokenError{Name: name, Reason: reason, Err: err, Issuers: h.Claimed()}
}

// parse returns also the header of a broken document, empty if it is unknown. A manifest of another kind, such as a
// kustomization.yaml, has no issuer URLs.
func parse(name Name, data []byte) (KeySet, manifest.Header, error) {
	asJSON, err := manifest.ToJSON(data)
	if err != nil {
		return KeySet{}, manifest.Header{}, err
	}
	h, err := manifest.ReadHeader(asJSON)
	if err != nil {
		return KeySet{}, h, err
	}
	if err := cmp.Or(name.Check(), h.Check()); err != nil {
		return KeySet{}, h, err
	}
	var d document
	strict, err := kjson.UnmarshalStrict(asJSON, &d)
	if err != nil {
		return KeySet{}, h, fmt.Errorf("it does not fit the form of a key set: %s", printableLine(err))
	}
	if d.Metadata.Name != name {
		return KeySet{}, h, fmt.Errorf("it is stored as %q but its metadata.name is %q", name, printable(string(d.Metadata.Name)))
	}
	s, err := d.keySet()
	if err != nil {
		return KeySet{}, h, err
	}
	for _, t := range s.times() { // else the digest of one moment would depend on the time zone
		*t = t.UTC()
	}
	for _, e := range strict { // a member of a newer minor version: read on, but never write it away
		s.unknown = append(s.unknown, printableLine(e))
	}
	return s, h, s.check()
}

func printableLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return text.OneLine(line, 200)
}

func (d document) keySet() (KeySet, error) {
	s := KeySet{name: d.Metadata.Name, labels: d.Metadata.Labels, annotations: d.Metadata.Annotations, body: d.Spec}
	s.body.Issuers, s.body.Keys = nil, nil
	if d.Spec.Keys == nil { // an emptied or misspelt list must not pass for "no keys" where there is no last good state
		return KeySet{}, errors.New("it has no spec.keys; write keys: [] for a key set without keys")
	}
	if err := s.checkBounds(len(d.Spec.Issuers), len(d.Spec.Keys), len(d.Spec.Gone)); err != nil {
		return KeySet{}, err
	}
	for _, raw := range d.Spec.Issuers {
		u, err := ParseIssuerURL(raw, s.body.Dev)
		if err != nil {
			return KeySet{}, err
		}
		s.issuers = append(s.issuers, u)
	}
	for n, kd := range d.Spec.Keys {
		k, err := kd.key()
		if err != nil {
			return KeySet{}, fmt.Errorf("key %d (%s): %w", n+1, printable(string(kd.Kid)), err)
		}
		s.keys = append(s.keys, k)
	}
	s.sortKeys()
	return s, nil
}

func (kd keyDocument) key() (Key, error) {
	block, rest := pem.Decode([]byte(kd.PublicKey))
	if block == nil || bytes.Contains(rest, []byte("-----BEGIN")) {
		return Key{}, errors.New("its publicKey is not one whole PEM block")
	}
	key, err := keypem.PublicKey(block)
	if err != nil {
		return Key{}, fmt.Errorf("its publicKey (%s): %w", printable(block.Type), err)
	}
	found, err := NewPublic(key)
	if err != nil {
		return Key{}, fmt.Errorf("its publicKey (%s): %w", printable(block.Type), err)
	}
	if kd.Kid == "" || (found.ID() != kd.Kid) != kd.ImportedKid {
		return Key{}, fmt.Errorf("its kid does not belong to its publicKey, whose key ID is %s (importedKid: true allows another one)", found.ID())
	}
	if kd.Alg == "" {
		return Key{}, errors.New("it has no alg")
	}
	pub, err := found.WithID(kd.Kid, kd.Alg)
	if err != nil {
		return Key{}, err
	}
	return Key{VerificationKey: pub, State: kd.State, PublishedAt: kd.PublishedAt, ObservedAt: kd.ObservedAt, PromotedAt: kd.PromotedAt, RetiredAt: kd.RetiredAt}, nil
}

// Encode returns the document of s: YAML with sorted keys. It returns an error for a key set with members that this
// version does not know, which it would lose ([Store.Write] writes such a document as it is).
func Encode(s KeySet) ([]byte, error) {
	if len(s.unknown) > 0 {
		return nil, fmt.Errorf("key set %q was written by a newer version (%s); change it with that version", s.name, s.unknown[0])
	}
	var data []byte
	err := s.check()
	if err == nil {
		data, err = s.MarshalJSON()
	}
	if err == nil {
		data, err = manifest.SortedYAML(data)
	}
	if err == nil && len(data) > MaxDocument {
		err = fmt.Errorf("it would have %d bytes, and at most %d are read", len(data), MaxDocument)
	}
	if err != nil {
		return nil, fmt.Errorf("encode key set %q: %w", s.name, err)
	}
	return data, nil
}

// documentWith returns the document of s with what form returns in place of each key's PEM.
func (s KeySet) documentWith(form func(Key) string) document {
	d := document{APIVersion: APIVersion, Kind: Kind, Spec: s.body}
	d.Metadata = metadata{Name: s.name, Labels: s.labels, Annotations: s.annotations}
	d.Spec.Keys = []keyDocument{}
	for _, u := range s.issuers {
		d.Spec.Issuers = append(d.Spec.Issuers, u.String())
	}
	for _, k := range s.keys {
		d.Spec.Keys = append(d.Spec.Keys, keyDocument{
			Kid: k.ID(), ImportedKid: k.Imported(), PublicKey: form(k), Alg: k.Alg(), State: k.State,
			PublishedAt: k.PublishedAt, ObservedAt: k.ObservedAt, PromotedAt: k.PromotedAt, RetiredAt: k.RetiredAt,
		})
	}
	return d
}

// Digest identifies the content of a version.
type Digest [sha256.Size]byte

// String returns d in hex, as reports and observations have it.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Digest identifies a key set's content. It does not depend on layout, comments, labels, annotations or members that
// this version does not know.
func (s KeySet) Digest() Digest {
	d := s.documentWith(func(k Key) string { return string(k.Fingerprint()) }) // of the same bytes as the PEM, and shorter
	d.Metadata.Labels, d.Metadata.Annotations = nil, nil
	canonical, err := json.Marshal(d)
	if err != nil {
		return Digest{} // cannot happen: nothing in a document is without a form in JSON
	}
	return sha256.Sum256(canonical)
}

// MarshalJSON returns the document of Encode as JSON.
func (s KeySet) MarshalJSON() ([]byte, error) {
	return json.Marshal(s.documentWith(Key.PEM))
}

// Unknown lists the members that this version does not know; such a key set can be served but not replaced.
func (s KeySet) Unknown() []string { return slices.Clone(s.unknown) }
