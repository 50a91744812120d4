// Package observe looks at issuers for the commands that need it, and records each look.
package observe

import (
	"context"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/observation"
)

// Flags say from where an issuer is looked at, and whom to trust there.
type Flags struct {
	Vantage string
	caFile  string
	connect string
}

// here returns the flags of a command that looks only while it waits, and has none of its own.
func here() Flags { return Flags{Vantage: strings.TrimSpace(os.Getenv("KEYPOST_VANTAGE"))} }

// Register defines --vantage.
func (fl *Flags) Register(fs *pflag.FlagSet) {
	*fl = here()
	fs.StringVar(&fl.Vantage, "vantage", fl.Vantage, "`NAME` of the place that this is run at, where the policy asks for named ones (issuer set --observe-from; default $KEYPOST_VANTAGE)")
	fs.Lookup("vantage").DefValue = ""
}

// RegisterNetwork defines --ca-file and --connect. A look through --connect is a diagnosis and opens no gate.
func (fl *Flags) RegisterNetwork(fs *pflag.FlagSet) {
	fs.StringVar(&fl.caFile, "ca-file", "", "PEM `FILE` with the CA of the issuer, instead of the system's")
	fs.StringVar(&fl.connect, "connect", "", "HOST:PORT to connect to instead of the URL's own addresses, such as an origin behind a CDN; a look of watch then never counts as complete")
}

// Observer looks at issuers and records what it sees.
type Observer struct {
	Records  *observation.Store
	Progress *terminal.Progress // of All; nil shows none
	network  fetch.Network
	vantage  string
}

// Network returns how issuers are reached, for the flags.
func (fl *Flags) Network() (fetch.Network, error) {
	if fl.Vantage != "" && keystore.Name(fl.Vantage).Check() != nil {
		return fetch.Network{}, cli.Usagef("--vantage %q: a vantage is named with lower-case letters, digits and hyphens, at most 63", cli.OneLine(fl.Vantage))
	}
	if err := cli.CheckConnect(fl.connect); err != nil {
		return fetch.Network{}, err
	}
	roots, err := cli.ReadRoots(fl.caFile)
	if err != nil {
		return fetch.Network{}, err
	}
	shield, err := ReadShield()
	return fetch.Network{RootCAs: roots, Connect: fl.connect, Shield: shield}, err
}

// Open returns an Observer for the flags, which writes to the place for observations.
func (fl *Flags) Open(ctx context.Context, f *cli.Factory) (Observer, error) {
	network, err := fl.Network()
	if err != nil {
		return Observer{}, err
	}
	records, err := f.CreateObservations(ctx)
	if err != nil {
		return Observer{}, err
	}
	return Observer{Records: records, network: network, vantage: fl.Vantage}, nil
}

// Result is what came of looking at one issuer URL.
type Result struct {
	Set     keystore.KeySet
	Subject observation.Subject
	Look    observation.Look
	Record  observation.Record // with the look; empty with Err
	Err     error              // the look was not made, or not recorded

	UnknownCA bool // some certificate came from a CA that is not trusted here
}

// Targets returns what there is to look at of a key set: each of its issuer URLs, none where nobody reads the documents.
func Targets(s keystore.KeySet) []verify.Target {
	var all []verify.Target
	if s.Policy().Reach == keystore.ReachCopies {
		return nil
	}
	for _, u := range s.Issuers() {
		all = append(all, verify.TargetOf(s, u))
	}
	return all
}

// atOnce bounds how many issuer URLs are looked at side by side. A look takes ten seconds and more, nearly all of it in
// waiting.
const atOnce = 32

// All looks at every issuer URL of key sets that are in use, several side by side, and records each look when it is done:
// an origin that lets requests wait delays no other's. Results are in the order of the key sets and their URLs.
func (o Observer) All(ctx context.Context, sets ...keystore.KeySet) []Result {
	var all []Result
	var targets []verify.Target
	for _, s := range sets {
		for _, t := range Targets(s) {
			all = append(all, Result{Set: s, Subject: observation.Subject{Issuer: t.URL.String(), Vantage: o.vantage}})
			targets = append(targets, t)
		}
	}
	for i := range targets {
		targets[i].Failed = func(_ string, err error) {
			if _, is := errors.AsType[x509.UnknownAuthorityError](err); is {
				all[i].UnknownCA = true
			}
		}
	}
	if o.Progress != nil {
		o.Progress.Of(len(all))
	}
	var looks errgroup.Group
	looks.SetLimit(atOnce)
	for i := range all {
		looks.Go(func() error {
			o.look(ctx, &all[i], targets[i])
			if o.Progress != nil {
				o.Progress.Done(1)
			}
			return nil
		})
	}
	_ = looks.Wait() // each result has its own error
	return all
}

func (o Observer) look(ctx context.Context, r *Result, t verify.Target) {
	if r.Look, r.Err = verify.Observe(ctx, o.network, t); r.Err == nil {
		r.Record, r.Err = o.Records.Add(ctx, r.Set.Name(), r.Subject, r.Look)
	}
}

// Missing returns what keeps the look from being complete; empty if it is and was recorded.
func (r Result) Missing() []string {
	if r.Err != nil {
		return append([]string{r.Err.Error()}, r.Look.Gaps...)
	}
	if off := r.Look.ClockGap(); off != "" {
		return append(slices.Clone(r.Look.Gaps), off)
	}
	return r.Look.Gaps
}

// counting looks at s if its policy counts what is seen from here, and prints what keeps a look from being complete.
func (o Observer) counting(ctx context.Context, f *cli.Factory, s keystore.KeySet) error {
	if !slices.ContainsFunc(observation.Required(s), func(p observation.Subject) bool { return p.Vantage == o.vantage }) {
		f.Notice("the policy counts other vantages than this one; they have to observe: %s", cli.ObserveCommand(s))
		return nil
	}
	for _, r := range o.All(ctx, s) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for _, why := range r.Missing() {
			f.Notice("the look at %s is not complete: %s", r.Subject, why)
		}
		if r.UnknownCA {
			f.Notice("hint: %s", OwnCA)
		}
	}
	return nil
}

// Looker looks for a command that waits for gates. It implements [rotation.Observer].
type Looker struct {
	*cli.Factory
	observer *Observer // opened when a look is needed, as that makes a directory
}

// Recorded returns what was seen of a key.
func (l *Looker) Recorded(ctx context.Context, s keystore.KeySet, k keystore.Key) (keystore.Observed, error) {
	return Recorded(ctx, l.Factory, s, k)
}

// Look looks at a key set, and records that.
func (l *Looker) Look(ctx context.Context, s keystore.KeySet) error {
	if l.observer == nil {
		here := here()
		opened, err := here.Open(ctx, l.Factory)
		if err != nil {
			return err
		}
		l.observer = &opened
	}
	return l.observer.counting(ctx, l.Factory, s)
}

// OwnCA says how a look is made to count where the certificate comes from a private CA.
const OwnCA = "if that certificate comes from your own CA, no look counts without it: set SSL_CERT_FILE to a file that has it, and run this again"

// Recorded returns what was seen of a published key. Where no place for observations is given, or it is not there yet,
// nothing was.
func Recorded(ctx context.Context, f *cli.Factory, s keystore.KeySet, k keystore.Key) (keystore.Observed, error) {
	records, err := Records(ctx, f, s)
	if err != nil || f.Observations == "" {
		return keystore.Observed{}, err
	}
	return observation.Of(observation.Key{ID: k.ID(), Fingerprint: k.Fingerprint()}, records, observation.Required(s)), nil
}

// MayPromote reports whether the gate of a key is open by what was recorded, so that no --force is needed to let it sign.
func MayPromote(ctx context.Context, f *cli.Factory, s keystore.KeySet, k keystore.Key) bool {
	seen, err := Recorded(ctx, f, s, k)
	if err != nil {
		return false
	}
	_, err = s.Promote(f.Change("", false), k.ID(), seen)
	return err == nil
}

// Records returns every record of a key set; none where no place for observations is given, or it is not there yet.
func Records(ctx context.Context, f *cli.Factory, s keystore.KeySet) ([]observation.Record, error) {
	if f.Observations == "" {
		return nil, nil
	}
	st, err := f.OpenObservations(ctx)
	if err == nil {
		var records []observation.Record
		if records, err = st.Of(ctx, s.Name()); err == nil {
			return records, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return nil, Damaged(f, err)
}

// Damaged adds to an error about a record that is damaged how to go on without it.
func Damaged(f *cli.Factory, err error) error {
	e, is := errors.AsType[*observation.DamagedError](err)
	if !is {
		return err
	}
	return cli.WithHint(err, "mend the document %s in %s, or remove it; without it nothing was seen, so that gates wait anew, and no key is added to a copy before one was read back", e.Document, f.Observations)
}

// Uploads returns what was read back of the uploads that the policy of s names. It reads nothing where that names none.
func Uploads(ctx context.Context, f *cli.Factory, s keystore.KeySet) (gate.Uploads, error) {
	if len(s.Policy().Uploads()) == 0 {
		return nil, nil
	}
	records, err := Records(ctx, f, s)
	return observation.Uploads(records), err
}

// UploadsOf returns how the uploads that the policy of s names compare with it. known is false where it names some and no place for
// observations is given.
func UploadsOf(ctx context.Context, f *cli.Factory, s keystore.KeySet) (all []observation.UploadStatus, known bool, err error) {
	if len(s.Policy().Uploads()) == 0 {
		return nil, true, nil
	}
	if f.Observations == "" {
		return nil, false, nil
	}
	records, err := Records(ctx, f, s)
	return observation.UploadsOf(s, records), true, err
}
