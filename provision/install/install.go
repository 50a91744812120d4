// Package install makes, re-runs, moves and deletes an installation in AWS: a published key set, an IAM OIDC identity
// provider, roles, and the files that an installer takes. Each verb takes what is wanted, compares it with what is there
// and makes the difference. It promises that a run may be stopped anywhere and started again, that nothing is changed in
// another account than the one that is meant, and that no provider is made before relying parties find the issuer's keys.
//
// It prints nothing and knows no command line: progress is reported as [Event] values, results are returned, and an error
// about which the caller can do something is an [*Error].
package install

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/plan"
)

// Mode is what a run does with the difference between what is there and what is wanted.
type Mode int

// The modes.
const (
	Apply   Mode = iota // make it
	Preview             // return it; change nothing
	DryRun              // write files for the AWS CLI; call nobody
)

// Options are what the verbs have in common. Fields that a verb has no use for are ignored.
type Options struct {
	Region  string // whose endpoints are called; empty for the configured one
	Account string // ID of the only account in which anything may be changed; empty for that of the credentials
	Store   KeyStore
	Report  func(Event) // any goroutine may call it; nil for nobody
	Mode    Mode

	Name      string // of the installation, and of the key set if one has to be made
	Dir       string // output directory
	IssuerURL string
	Dev       bool            // a development issuer: its URL may have a port, and waits are short
	Site      Site            // where the issuer is looked for
	Policy    keystore.Policy // of a new key set

	ClientIDs      []string // audiences
	Usual          bool     // ClientIDs are a default, and those that exist may differ from them
	Thumbprints    []string
	Tags           map[string]string // for all that is made, beside the owner's
	Adopt          bool              // take over what is not tagged as ours
	Tighten        bool              // take away what is not asked for
	MaxTrustLength int               // of trust policies, in characters; 0 for 2,048
}

func (o Options) provider() awsiam.Provider {
	return awsiam.Provider{
		URL: o.IssuerURL, ClientIDs: o.ClientIDs, Thumbprints: o.Thumbprints,
		Owner: awsiam.OwnedBy(o.Name), Tags: o.Tags, Adopt: o.Adopt, Tighten: o.Tighten, Port: o.Dev,
	}
}

func (o Options) trust(providerARN string) awsiam.Trust {
	return awsiam.Trust{ProviderARN: providerARN, Issuer: o.IssuerURL, Audiences: o.ClientIDs, Usual: o.Usual,
		MaxLength: o.MaxTrustLength, Port: o.Dev}
}

// KeyStore is where key sets are published. A zero KeyStore means that there is none.
type KeyStore struct {
	Name string // for messages; empty if it must not be shown
	By   string // recorded as the author of changes

	InDir bool // it is a directory

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
	At     time.Time      // with Wait
	Phase  string         // with Wait: events of one phase report one wait
}

// Kind is the kind of an event.
type Kind string

// The kinds. Those from Warning on are warnings, which do not stop the run.
const (
	Line         Kind = "line"     // a line of the log, in ccoctl's words where ccoctl has one
	Wait         Kind = "wait"     // reported once a second or less often
	Progress     Kind = "progress" // how many changes are made
	Warning      Kind = "warning"
	KeyIsNext    Kind = "key is next"    // the cluster's key may sign only once it is promoted
	UnknownKey   Kind = "unknown key"    // the old issuer publishes a key that the cluster does not know
	UnreadKeySet Kind = "unread key set" // a document of the store cannot be read
)

// run is one run of a verb.
type run struct {
	report  func(Event)
	store   KeyStore
	client  *awsiam.Client // nil until identify
	account awsiam.Account // zero until identify
}

func newRun(o Options) *run {
	if o.Report == nil {
		o.Report = func(Event) {}
	}
	return &run{report: o.Report, store: o.Store}
}

func (r *run) line(format string, args ...any) {
	r.report(Event{Kind: Line, Text: fmt.Sprintf(format, args...)})
}

func (r *run) lines(lines []string) {
	for _, l := range lines {
		r.report(Event{Kind: Line, Text: l})
	}
}

func (r *run) warn(format string, args ...any) {
	r.report(Event{Kind: Warning, Text: fmt.Sprintf(format, args...)})
}

// wait reports a wait; its format is its phase.
func (r *run) wait(now time.Time, format string, args ...any) {
	r.report(Event{Kind: Wait, At: now, Phase: format, Text: fmt.Sprintf(format, args...)})
}

// identify asks AWS whose account the credentials are for, reports where everything is going to be, and refuses an account
// other than the one that is meant.
func (r *run) identify(ctx context.Context, o Options) error {
	client, err := awsiam.Open(ctx, awsiam.Options{Region: o.Region, OnWait: func(w awsiam.Wait) {
		r.wait(time.Now(), "still waiting for AWS: %s", w)
	}})
	if err != nil {
		return err
	}
	account, err := client.Account(ctx)
	if err != nil {
		return err
	}
	where := fmt.Sprintf("Account %s (%s), caller %s", account.ID, account.Partition, account.Caller)
	if r.store.Name != "" {
		where += ", store " + r.store.Name
	}
	if o.IssuerURL != "" {
		where += ", issuer " + o.IssuerURL
	}
	r.line("%s", where)
	if o.Account != "" && account.ID != o.Account {
		return problem(WrongAccount, "the credentials are for account %s, not for %s; nothing was changed", account.ID, o.Account)
	}
	r.client, r.account = client, account
	return nil
}

// apply makes the changes of a plan.
func (r *run) apply(ctx context.Context, p plan.Plan) error {
	r.lines(p.Notes)
	for _, w := range slices.Concat(p.Warnings, p.Extra) {
		r.warn("%s", w)
	}
	made, total := 0, p.Len()
	return p.Apply(ctx, awsiam.Parallel, func(_ plan.Action, lines []string, err error) {
		r.lines(lines)
		if err == nil {
			made++
		}
		r.report(Event{Kind: Progress, Text: fmt.Sprintf("%d of %d changes made", made, total)})
	})
}

// carryOut makes the changes of a plan, or returns them as a preview.
func (r *run) carryOut(ctx context.Context, m Mode, p plan.Plan) (*plan.Preview, error) {
	if m == Preview {
		v := p.Preview()
		return &v, nil
	}
	return nil, r.apply(ctx, p)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// subject returns the sub of a service account's tokens.
func subject(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}
