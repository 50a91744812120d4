package gcpcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/uploadcmd"
	"github.com/keypost/keypost/issuer/upload"
	"github.com/keypost/keypost/issuer/upload/holder"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/rest"
)

// Uploads returns who holds uploads on Google Cloud: providers that Google was given keys for.
func Uploads(f *cli.Factory) holder.Kind {
	return holder.Kind{Name: "gcp", Title: "Google Cloud",
		Needs: "Google's default credentials", Open: providers{f, map[string]*project{}}.open}
}

// providers opens providers, and each project once for all of its.
type providers struct {
	*cli.Factory
	projects map[string]*project // by ID or number
}

func (o providers) open(ctx context.Context, to holder.Target) (upload.Holder, error) {
	id, err := federation.ParseProvider(to.Place)
	if err != nil {
		return nil, err
	}
	p := o.projects[id.Project]
	if p == nil {
		p = &project{}
		p.client, err = federation.Open(ctx, rest.Access{
			Project: id.Project, Transport: &p.dates, OnWait: func(w cloud.Wait) { o.Notice("%v", w) },
		})
		if err != nil {
			return nil, err
		}
		o.projects[id.Project] = p
	}
	return &provider{project: p, id: id, to: to}, nil
}

// project is one that is open, and what its clock says.
type project struct {
	client *federation.Client
	dates  dates
}

// provider implements [upload.Holder].
type provider struct {
	project *project
	id      federation.ProviderID
	to      holder.Target
	issuer  string // that it was for when it was read last: the uploader has seen that it belongs to the key set
	of      string // the installation that its description named then; empty for none
}

// making is makingProvider for the provider's installation. Where its description names none, the provider bears its name by default.
func (p *provider) making(issuerURL string) cli.Command {
	return makingProvider(cmp.Or(p.of, p.id.Provider), p.id, issuerURL, true)
}

// revived adds to an error about a provider that takes no token the command that makes it anew, brings it back or enables it.
func (p *provider) revived(err error) error {
	return cli.WithHint(err, "to have it take tokens of key set %q again: %s", p.to.Set.Name(), p.making(p.to.Set.Issuers()[0].String()))
}

func (p *provider) Upload(ctx context.Context, jwks []byte) error {
	_, err := p.project.client.UploadKeys(ctx, federation.Provider{
		Pool: p.id.Pool, ID: p.id.Provider, IssuerURL: p.issuer, JWKS: jwks, Owner: federation.OwnedBy(string(p.to.Set.Name())), Adopt: p.to.Adopt,
	})
	if e, is := errors.AsType[*rest.Error](err); is && e.Problem == rest.NotOwned {
		return cli.WithHint(err, "if this provider is for the issuer of key set %q all the same, say so each time: %s; or once, so that its description says it: %s",
			p.to.Set.Name(), append(cli.SyncCommand(p.to.Set.Name()), "--adopt"), append(p.making(p.issuer), "--adopt"))
	}
	return err
}

// errNoKeys means that a provider has no copy.
var errNoKeys = errors.New("this provider holds no keys: Google fetches those that the issuer publishes")

func (p *provider) Read(ctx context.Context) (upload.Held, error) {
	held, err := p.project.client.UploadedKeys(ctx, p.id.Pool, p.id.Provider)
	p.of = held.Installation
	if rest.Is(err, rest.NoProvider) {
		return upload.Held{}, &upload.RefusedError{Err: p.revived(err)}
	}
	if err != nil {
		return upload.Held{}, err
	}
	p.issuer = held.IssuerURL
	refused := held.Refused
	if rest.Is(refused, rest.PoolUnusable) {
		refused = cli.WithHint(refused, "to bring the pool back: %s",
			cli.Command{"gcp", "create-workload-identity-pool", "--name", p.id.Pool, "--project", p.id.Project})
	} else if refused != nil {
		refused = p.revived(refused)
	}
	if refused != nil {
		refused = fmt.Errorf("%s takes no token, whatever keys it has: %w", p.id, refused)
	}
	if held.JWKS == "" {
		return upload.Held{}, cli.WithHint(errNoKeys, "if that is as it should be, say so: %s; or, to give it a first upload: %s",
			fetching(p.to.Set.Name(), p.to.Set.Policy(), p.to.Place), p.making(p.issuer))
	}
	return upload.Held{JWKS: []byte(held.JWKS), Issuer: held.IssuerURL, Date: p.project.dates.now(), Refused: refused}, nil
}

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
