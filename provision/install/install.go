// Package install makes, re-runs, moves and deletes an installation in AWS: a published key set, an IAM OIDC identity
// provider, roles, and the files that an installer takes. Each verb takes what is wanted, compares it with what is there
// and makes the difference. It promises that a run may be stopped anywhere and started again, that nothing is changed in
// another account than the one that is meant, and that no provider is made before relying parties find the issuer's keys.
//
// It prints nothing and knows no command line: progress is reported as [Event] values, results are returned, and errors
// about which the caller can do something have types.
package install

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/plan"
)

// Mode says what a run does about the difference between what is there and what is wanted.
type Mode int

// The modes.
const (
	Apply   Mode = iota // make it
	Preview             // return it; change nothing
	DryRun              // write files for the AWS CLI; call nobody
)

// Target is the AWS account to work in.
type Target struct {
	Region  string // whose endpoints are called; empty for the configured one
	Account string // ID of the only account in which anything may be changed; empty for that of the credentials
}

// KeyStore is where key sets are published. A zero KeyStore means that there is none.
type KeyStore struct {
	Name string // for messages; empty if it must not be shown
	By   string // recorded as the author of changes

	Check  func() error                                   // reports what is wrong with the store's address; calls nobody
	Open   func(context.Context) (*keystore.Store, error) // the error wraps fs.ErrNotExist if the store is not there
	Create func(context.Context) (*keystore.Store, error) // Open, but makes the store if it can
}

// Event is something that a run reports: a [Line], [Wait], [Progress], [Warning], [KeyIsNext], [UnknownKey] or
// [UnreadKeySet].
type Event interface{ event() }

// Line is a line of the log, in ccoctl's words where ccoctl has one.
type Line string

// Warning is something unusual that does not stop the run.
type Warning string

// Wait reports a wait, once a second or less often. Waits of one phase are one wait.
type Wait struct {
	At    time.Time
	Phase string
	Text  string
}

// Progress counts the changes made.
type Progress struct{ Made, Total int }

// KeyIsNext warns that the cluster's key is in state next: it may sign only once it is promoted.
type KeyIsNext struct {
	KeySet keystore.Name
	Key    keystore.KeyID
}

// UnknownKey warns of a key that the old issuer publishes and the cluster does not know. It is trusted under the new
// issuer as well.
type UnknownKey struct {
	Old, New string // issuer URLs
	KeySet   keystore.Name
	Key      keystore.KeyID
}

// UnreadKeySet warns that a document of the store cannot be read.
type UnreadKeySet struct{ Name keystore.Name }

func (Line) event()         {}
func (Warning) event()      {}
func (Wait) event()         {}
func (Progress) event()     {}
func (KeyIsNext) event()    {}
func (UnknownKey) event()   {}
func (UnreadKeySet) event() {}

// run is one run of a verb.
type run struct {
	report  func(Event) // any goroutine may call it
	store   KeyStore
	client  *awsiam.Client // nil until identify
	account awsiam.Account // zero until identify
}

func newRun(report func(Event), store KeyStore) *run {
	if report == nil {
		report = func(Event) {}
	}
	return &run{report: report, store: store}
}

func (r *run) line(format string, args ...any) { r.report(Line(fmt.Sprintf(format, args...))) }

func (r *run) lines(lines []string) {
	for _, l := range lines {
		r.report(Line(l))
	}
}

func (r *run) warn(format string, args ...any) { r.report(Warning(fmt.Sprintf(format, args...))) }

// wait reports a wait; its format is its phase.
func (r *run) wait(now time.Time, format string, args ...any) {
	r.report(Wait{At: now, Phase: format, Text: fmt.Sprintf(format, args...)})
}

// identify asks AWS whose account the credentials are for, reports where everything is going to be, and refuses an account
// other than the one that is meant.
func (r *run) identify(ctx context.Context, t Target, issuerURL string) error {
	client, err := awsiam.Open(ctx, awsiam.Options{Region: t.Region, OnWait: func(w awsiam.Wait) {
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
	if issuerURL != "" {
		where += ", issuer " + issuerURL
	}
	r.line("%s", where)
	if t.Account != "" && account.ID != t.Account {
		return &AccountError{Account: account.ID, Want: t.Account}
	}
	r.client, r.account = client, account
	return nil
}

// apply makes the changes of a plan.
func (r *run) apply(ctx context.Context, p plan.Plan) error {
	r.lines(p.Notes)
	for _, extra := range p.Extra {
		r.warn("%s", extra)
	}
	made, total := 0, p.Len()
	return p.Apply(ctx, awsiam.Parallel, func(_ plan.Action, lines []string, err error) {
		r.lines(lines)
		if err == nil {
			made++
		}
		r.report(Progress{made, total})
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

// plural returns a number and its noun.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// subject returns the sub of a service account's tokens.
func subject(namespace, name string) string {
	return strings.Join([]string{"system", "serviceaccount", namespace, name}, ":")
}
