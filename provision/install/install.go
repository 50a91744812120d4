// Package install makes and moves installations in any cloud: a published key set, what trusts it there, and the files that
// an installer takes. What is wanted is compared with what is there, and the difference made. It promises that a run may be
// stopped anywhere and started again, and that nobody is sent to an issuer before relying parties find its keys.
//
// It prints nothing and knows no command line: progress is reported as [Event] values, results are returned, and an error
// about which the caller can do something is an [*Error]. It knows no cloud either. A cloud's package has its own options,
// begins each of its verbs with [NewRun], and uses of the run what it needs:
//
//   - To make an installation it is a [Cloud], for [Run.Create].
//   - Any other verb makes a plan, which [Run.CarryOut] applies or returns as a preview.
//   - [Run.WriteFiles] writes dry-run files and Secrets into the output directory.
//   - To move a live cluster, [Run.PublishMoved] publishes the [Run.MovedKeys] under the new URL before [Run.Apply] makes the plan. Where
//     one identity trusts both issuers meanwhile, [Run.MayFinish] says when its trust in the old one may go.
package install

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/plan"
)

// Mode is what a run does with the difference between what is there and what is wanted.
type Mode int

// The modes.
const (
	Apply   Mode = iota // make it
	Preview             // return it; change nothing
	DryRun              // write files for the cloud's own command line; call nobody
)

// Options are what the verbs have in common. Fields that a verb has no use for are ignored.
type Options struct {
	Store  KeyStore
	Report func(Event) // any goroutine may call it; nil for nobody
	Mode   Mode

	Name      string // of the installation, and of the key set if one has to be made
	Dir       string // output directory
	IssuerURL string
	Adopt     bool            // take over what is not ours: in the cloud what the cloud's package says; the manifests of another issuer in Dir
	Dev       bool            // a development issuer: its URL may have a port, and waits are short
	Site      Site            // where the issuer is looked for
	Policy    keystore.Policy // of a new key set
}

// KeyStore is where key sets are published. A zero KeyStore means that there is none.
type KeyStore struct {
	Name   string                 // for messages; empty if it must not be shown
	Change func() keystore.Change // returns who changes key sets, when and why; called once the store was opened

	Check  func() error                                   // reports what is wrong with the store's address; calls nobody
	Open   func(context.Context) (*keystore.Store, error) // the error wraps fs.ErrNotExist if the store is not there
	Create func(context.Context) (*keystore.Store, error) // Open, but makes the store if it can
}

// Event is something that a run reports.
type Event struct {
	Kind   Kind
	Text   string
	KeySet keystore.Name  // with KeyIsNext, UnknownKey and UnreadKeySet
	Key    keystore.KeyID // with KeyIsNext and UnknownKey
}

// Kind is the kind of an event.
type Kind string

// The kinds. Those from Warning on are warnings, which do not stop the run.
const (
	Line         Kind = "line"     // a line of the log, in ccoctl's words where ccoctl has one
	Wait         Kind = "wait"     // reported once a second or less often; worth a line only where nothing was told for a while
	Progress     Kind = "progress" // how many changes are made
	Warning      Kind = "warning"
	KeyIsNext    Kind = "key is next"    // the cluster's key may sign only once it is promoted
	UnknownKey   Kind = "unknown key"    // the old issuer publishes a key that the cluster does not know
	UnreadKeySet Kind = "unread key set" // a document of the store cannot be read
)

// Run is one run of a verb. Its methods that report may be called from any goroutine, the others from one.
type Run struct {
	*Options // Report is never nil
}

// NewRun returns a run with these options, not with a copy of them: a cloud's run has them among its own.
func NewRun(o *Options) *Run {
	if o.Report == nil {
		o.Report = func(Event) {}
	}
	return &Run{Options: o}
}

// Line reports a line of the log.
func (r *Run) Line(format string, args ...any) {
	r.Report(Event{Kind: Line, Text: fmt.Sprintf(format, args...)})
}

// Lines reports lines of the log.
func (r *Run) Lines(lines []string) {
	for _, l := range lines {
		r.Report(Event{Kind: Line, Text: l})
	}
}

// Warn reports a warning.
func (r *Run) Warn(format string, args ...any) {
	r.Report(Event{Kind: Warning, Text: fmt.Sprintf(format, args...)})
}

// Wait reports how a wait is getting on.
func (r *Run) Wait(format string, args ...any) {
	r.Report(Event{Kind: Wait, Text: fmt.Sprintf(format, args...)})
}

// Place reports where everything is going to be: in the cloud, in the store, and under which issuer URL.
func (r *Run) Place(cloud string) {
	if r.Store.Name != "" {
		cloud += ", store " + r.Store.Name
	}
	if r.IssuerURL != "" {
		cloud += ", issuer " + r.IssuerURL
	}
	r.Line("%s", cloud)
}

// Apply makes the changes of a plan, at most parallel of them at once.
func (r *Run) Apply(ctx context.Context, p plan.Plan, parallel int) error {
	r.Lines(p.Notes)
	for _, w := range slices.Concat(p.Warnings, p.Extra) {
		r.Warn("%s", w)
	}
	made, total := 0, p.Len()
	return p.Apply(ctx, parallel, func(_ plan.Action, lines []string, err error) {
		r.Lines(lines)
		if err == nil {
			made++
		}
		r.Report(Event{Kind: Progress, Text: fmt.Sprintf("%d of %d changes made", made, total)})
	})
}

// CarryOut makes the changes of a plan, or returns them with mode [Preview].
func (r *Run) CarryOut(ctx context.Context, p plan.Plan, parallel int) (*plan.Preview, error) {
	if r.Mode == Preview {
		v := p.Preview()
		return &v, nil
	}
	return nil, r.Apply(ctx, p, parallel)
}

// Subject returns the sub of a service account's tokens.
func Subject(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// ServiceAccount names a service account of a cluster.
type ServiceAccount struct{ Namespace, Name string }

// Subject returns the sub of its tokens.
func (a ServiceAccount) Subject() string { return Subject(a.Namespace, a.Name) }

// Secret is the manifest of a Secret that was written.
type Secret struct {
	Namespace string `json:"namespace"`
	File      string `json:"file"` // its path
	Same      bool   `json:"-"`    // an earlier run wrote the same file
}

// secret returns the Secret that a file has the manifest of, before the file is written.
func (r *Run) secret(f ccoctl.File) Secret {
	had, err := regular.Read(r.Path(f.Name), 1<<20)
	return Secret{Namespace: f.Namespace, File: r.Path(f.Name), Same: err == nil && bytes.Equal(had, f.Data)}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Error is an error about which the caller can do something.
type Error struct {
	Problem  Problem
	KeySet   keystore.Name // with NotServed, OnlyCopies, OthersKey, KeyNeeded and KeyNotPublished
	File     string        // with HalfKeyPair: the public key. With OthersDir: the manifest with the other issuer URL. With OthersKey: the source of the key. With KeyNotPublished: the source of the missing key
	Provider string        // its ARN or, in another cloud, its ID, with ProviderUnread, UnknownAudience and LostAudience
	Audience string        // with UnknownAudience and LostAudience
	Err      error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Problem is the kind of an [Error].
type Problem int

// The problems.
const (
	WrongAccount    Problem = iota + 1 // the credentials are for another account than the one that is meant
	OthersDir                          // the output directory has the manifests of another issuer's cluster
	HalfKeyPair                        // a public key file is there without its private half, with which a cluster may sign
	KeyPairMismatch                    // the key files are not the two halves of one key
	OtherSigningKey                    // another cluster's signing key is in the place from which the installer takes it
	NoRequests                         // a directory has no CredentialsRequest; a cluster without roles does not start
	ForeignProvider                    // the provider belongs to another account or partition than the credentials, or for another issuer
	ProviderUnread                     // the provider cannot be read; perhaps it is not there
	UnknownAudience                    // the provider takes no tokens for an audience
	LostAudience                       // the old issuer's provider takes an audience that the new one's would not
	BadName                            // the installation's name cannot be that of a key set
	Taken                              // the issuer URL or the name for its key set is not free
	Withdrawn                          // the issuer URL belonged to a key set that was withdrawn
	KeyNeeded                          // the issuer is published, and a key that is still to be generated would be trusted by nobody
	NoKey                              // no public key is given, and none is stored under the issuer URL
	OthersKey                          // another key set publishes the key, whose cluster could speak for this one
	KeyRetired                         // the published key set has the cluster's key as retired
	KeyNotPublished                    // the published key set does not have the cluster's key; to add it is a rotation, with gates of its own
	NotServed                          // the key set is stored and was not served in time
	OnlyCopies                         // the published key set's documents are read by nobody, and the cloud would have to fetch them
	OldKeysUnread                      // the keys of the old issuer cannot be read
	WrongCluster                       // the cluster signs as neither the old issuer nor the new one
)

// Refuse returns the error for a problem.
func Refuse(p Problem, format string, args ...any) *Error {
	return &Error{Problem: p, Err: fmt.Errorf(format, args...)}
}
