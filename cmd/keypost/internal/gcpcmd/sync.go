package gcpcmd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/uploadcmd"
	"github.com/keypost/keypost/issuer/upload"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/iam"
)

// NewCmdSyncKeys returns sync-keys: the published keys to providers that Google was given keys for.
func NewCmdSyncKeys(f *cli.Factory) *cobra.Command {
	all := providers{f, map[string]*project{}}
	return uploadcmd.NewCmdSync(f, uploadcmd.Cloud{Kind: "gcp", Name: "Google Cloud",
		Form: iam.ProviderID{Project: "NUMBER", Pool: "POOL", Provider: "PROVIDER"}.String(), Open: all.open, Revive: all.revive})
}

// providers opens providers, and each project once for all of its.
type providers struct {
	*cli.Factory
	projects map[string]*project // by ID or number
}

func (o providers) open(ctx context.Context, to uploadcmd.Target) (upload.Holder, error) {
	id, err := iam.ParseProvider(to.Place)
	if err != nil {
		return nil, err
	}
	p := o.projects[id.Project]
	if p == nil {
		p = &project{seen: map[iam.ProviderID]iam.Registered{}, pools: map[iam.ProviderID]bool{}}
		p.client, err = iam.Open(ctx, iam.Access{
			Project: id.Project, Transport: &p.dates, OnWait: func(w cloud.Wait) { o.Notice("%v", w) },
		})
		if err != nil {
			return nil, err
		}
		o.projects[id.Project] = p
	}
	return &provider{project: p, id: id, to: to}, nil
}

func (o providers) revive(to uploadcmd.Target) cli.Commands {
	id, err := iam.ParseProvider(to.Place)
	if err != nil {
		return nil
	}
	p := o.projects[id.Project]
	if p == nil {
		p = &project{}
	}
	c := revive(id, to, p.seen[id])
	switch {
	case c == nil:
		return nil
	case p.pools[id]: // without its pool no provider is made, and none comes back
		return cli.Commands{makingPool(id), c}
	}
	return cli.Commands{c}
}

// revive returns the command that makes a provider anew, brings it back or enables it, with a copy of the keys, for the installation that
// its description names. One that trusts another issuer by now is changed with --adopt alone. It is nil where the issuer is not known.
func revive(id iam.ProviderID, to uploadcmd.Target, of iam.Registered) cli.Command {
	if len(to.Issuers) == 0 {
		return nil
	}
	ours := func(i keystore.IssuerURL) bool { return i.String() == of.IssuerURL }
	another := of.IssuerURL != "" && !slices.ContainsFunc(to.Issuers, ours)
	if another || of.IssuerURL == "" {
		of.IssuerURL = to.Issuers[0].String()
	}
	if of.Installation == "" && !to.Adopt && party.IsPoolID(string(to.KeySet)) { // with --adopt it is somebody else's, who is not known
		of.Installation = string(to.KeySet)
	}
	c := revival(id, of, true)
	if another && !of.Foreign {
		c = append(c, "--adopt")
	}
	return c
}

// makingPool returns the command that makes the pool of a provider, brings it back or enables it.
func makingPool(id iam.ProviderID) cli.Command {
	return cli.Command{"gcp", "create-workload-identity-pool", "--name", id.Pool, "--project", id.Project}
}

// project is one that is open, what its clock says, and its providers as they were read last.
type project struct {
	client *iam.Client
	dates  dates
	seen   map[iam.ProviderID]iam.Registered
	pools  map[iam.ProviderID]bool // of those that are gone: no provider of the pool takes a token
}

// provider implements [upload.Holder].
type provider struct {
	project *project
	id      iam.ProviderID
	to      uploadcmd.Target
	issuer  string // that it was for when it was read last: who uploads has seen that it is the key set's
}

func (p *provider) Upload(ctx context.Context, jwks []byte) error {
	_, err := p.project.client.UploadKeys(ctx, iam.Provider{
		Pool: p.id.Pool, ID: p.id.Provider, IssuerURL: p.issuer, JWKS: jwks, Owner: iam.OwnedBy(string(p.to.KeySet)), Adopt: p.to.Adopt,
	})
	if e, is := errors.AsType[*iam.Error](err); is && e.Problem == iam.NotOwned {
		hint := "if this provider is for the issuer of key set %q all the same, say so each time: %s"
		args := []any{p.to.KeySet, append(cli.SyncCommandOf("gcp", p.to.KeySet), "--adopt")}
		if of := p.project.seen[p.id]; of.KeySet == "" {
			hint, args = hint+"; or once, so that its description says it: %s", append(args, revival(p.id, of, of.JWKS != ""))
		}
		return cli.WithHint(err, hint, args...)
	}
	return err
}

// errNoKeys is of a provider that has no copy.
var errNoKeys = errors.New("this provider holds no keys: Google fetches those that the issuer publishes")

func (p *provider) Read(ctx context.Context) (upload.Held, error) {
	held, pool, err := p.project.client.UploadedKeys(ctx, p.id.Pool, p.id.Provider)
	if e, is := errors.AsType[*iam.UnusableError](err); is {
		p.project.seen[p.id] = e.Provider
	}
	if e, is := errors.AsType[*iam.Error](err); is && e.Problem == iam.NoProvider {
		p.project.pools[p.id] = pool != nil
		return upload.Held{}, &upload.RefusedError{Err: err}
	}
	if err != nil {
		return upload.Held{}, err
	}
	var refused error
	switch {
	case pool != nil:
		refused = cli.WithHint(fmt.Errorf("%s takes no token, whatever keys it has: %w", p.id, pool), "to bring the pool back: %s", makingPool(p.id))
	case held.Disabled:
		refused = fmt.Errorf("%s is disabled: it takes no token, whatever keys it has, until it is enabled", p.id)
	}
	p.issuer, p.project.seen[p.id] = held.IssuerURL, held
	if held.JWKS == "" {
		first := revive(p.id, p.to, held)
		if first == nil {
			return upload.Held{}, errNoKeys
		}
		return upload.Held{}, cli.WithHint(errNoKeys, "if that is as it should be, say so: %s; or, to give it a first upload: %s", p.declared(), first)
	}
	return upload.Held{JWKS: []byte(held.JWKS), Issuer: held.IssuerURL, Date: p.project.dates.now(), Refused: refused}, nil
}

// declared returns the command by which the key set's policy says that Google fetches the keys, and has no copy of them.
func (p *provider) declared() cli.Command { return fetching(p.to.KeySet, p.to.Policy, p.to.Place) }

// fetching returns the command by which a key set's policy says that Google fetches the keys, and has no copy of them in a provider.
func fetching(of keystore.Name, had keystore.Policy, provider string) cli.Command {
	want := had
	want.RelyingParties = slices.DeleteFunc(slices.Clone(want.RelyingParties), func(name string) bool {
		kind, place := party.Upload(name)
		return name == "gcp" || kind == "gcp" && place == provider
	})
	want.RelyingParties, want.Reach = append(want.RelyingParties, "gcp"), ""
	return uploadcmd.Setting(of, had, want)
}

// dates is a transport that remembers what the clock of who answered said last, so that a wrong clock of this machine opens no gate.
type dates struct {
	mu   sync.Mutex
	date time.Time
	at   time.Time // on this machine, which counts what has passed since
}

func (d *dates) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if date, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.date, d.at = date, time.Now()
	}
	return res, nil
}

// now returns the time by the clock of who answered; zero if nobody said.
func (d *dates) now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.date.IsZero() {
		return d.date
	}
	return d.date.Add(time.Since(d.at))
}
