package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/plan"
)

// awsRun is one run of an aws command.
type awsRun struct {
	*app
	f       *awsFlags
	journal *journal
	client  *awsiam.Client // nil until identify
	account awsiam.Account // zero until identify
}

// awsDo makes a cobra RunE of an aws command's own work.
func (a *app) awsDo(f *awsFlags, work func(ctx context.Context, r *awsRun) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		a.Begin()
		if cmd.Flags().Lookup("output-dir") != nil {
			if err := f.checkOutputDir(); err != nil {
				return err
			}
		}
		f.usual = !cmd.Flags().Changed("client-id")
		return work(cmd.Context(), &awsRun{app: a, f: f, journal: newJournal(a.Err)})
	}
}

// identify asks AWS whose account this is, and says first of all where everything is going to be. Nothing is changed
// in an account other than that of --account.
func (r *awsRun) identify(ctx context.Context) error {
	client, err := awsiam.Open(ctx, awsiam.Options{Region: r.f.region, Waiting: func(w awsiam.Wait) {
		r.journal.progress(time.Now(), "still waiting for AWS: %s", w)
	}})
	if err != nil {
		return err
	}
	account, err := client.Account(ctx)
	if err != nil {
		return err
	}
	where := fmt.Sprintf("Account %s (%s), caller %s", account.ID, account.Partition, account.Caller)
	if _, err := parsePlace(r.Store); err == nil { // what cannot be parsed may have a password in it
		where += ", store " + r.Store
	}
	if r.f.issuerURL != "" {
		where += ", issuer " + r.f.issuerURL
	}
	r.journal.printf("%s", where)
	if r.f.account != "" && account.ID != r.f.account {
		return withHint(fmt.Errorf("the credentials are for account %s, not for %s (--account); nothing was changed", account.ID, r.f.account),
			"choose others: AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	r.client, r.account = client, account
	return nil
}

// differsError ends a run of --diff that found something to change, or something beyond what is wanted.
type differsError struct{ actions, extra int }

func (e *differsError) Error() string {
	var found []string
	if e.actions > 0 {
		found = append(found, plural(e.actions, "thing differs", "things differ"))
	}
	if e.extra > 0 {
		found = append(found, plural(e.extra, "thing is there beyond what is wanted", "things are there beyond what is wanted"))
	}
	return strings.Join(found, ", ") + "; nothing was changed"
}

// ExitCode is for [cli.Factory.Run].
func (e *differsError) ExitCode() int { return cli.ExitDiffer }

// plural is a number and its noun.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// settle shows the plan (--diff), or makes it so.
func (r *awsRun) settle(ctx context.Context, p plan.Plan) error {
	if r.f.diff {
		return r.show(p.Preview())
	}
	for _, note := range p.Notes {
		r.journal.printf("%s", note)
	}
	for _, extra := range p.Extra {
		r.warn("%s", oneLine(extra))
	}
	total, made := p.Len(), 0
	defer r.journal.clear()
	return p.Apply(ctx, awsiam.Parallel, func(_ plan.Action, said []string, err error) {
		for _, line := range said {
			r.journal.printf("%s", line)
		}
		if err == nil {
			made++
		}
		r.journal.show("%d of %d changes made", made, total)
	})
}

func (r *awsRun) show(p plan.Preview) error {
	if err := p.Write(r.Out); err != nil {
		return err
	}
	if n := len(p.Changes); n+len(p.Extra) > 0 {
		return &differsError{n, len(p.Extra)}
	}
	return nil
}
