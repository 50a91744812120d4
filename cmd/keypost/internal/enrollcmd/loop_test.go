package enrollcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/enroll"
	programs "github.com/keypost/keypost/test/process"
)

// scripted is a source whose listings the test hands out, one to a pass.
type scripted chan listing

type listing struct {
	names []keystore.Name
	err   error
}

func (s scripted) List(ctx context.Context) (all []enroll.Cluster, err error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case l := <-s:
		for _, n := range l.names {
			all = append(all, enroll.Cluster{Name: n, Access: &rest.Config{Host: string(n)}})
		}
		return all, l.err
	}
}

// look is what every cluster shows.
type look struct {
	cluster.Identity
	err error
}

func config(t *testing.T, source enroll.Source, of func(*rest.Config) look) enroll.Config {
	t.Helper()
	pattern, err := issuer.ParsePattern("https://oidc.example.com/{name}", false)
	if err != nil {
		t.Fatal(err)
	}
	return enroll.Config{
		Rules: enroll.Rules{URL: pattern.URL, Policy: keystore.Policy{RelyingParties: []string{"aws"}}}, Store: storetest.NewMemStore(t).Store, Source: source,
		Change: func(why string) keystore.Change { return keystore.Change{At: time.Now(), By: "enroll@test", Why: why} },
		Look: func(_ context.Context, c *rest.Config) (cluster.Identity, error) {
			l := of(c)
			return l.Identity, l.err
		},
	}
}

// The loop says each thing once, when it changes, and ends well.
func TestLoop(t *testing.T) {
	t.Parallel()
	keys := []keystore.VerificationKey{storetest.Key(t), storetest.Key(t)}
	shows := func(uid string, n int) look {
		return look{Identity: cluster.Identity{ID: keystore.ClusterID(uid), Issuer: "https://oidc.example.com/a", Keys: keys[:n]}}
	}
	away := func(why string) look { return look{err: errors.New(why)} }
	var now atomic.Pointer[look]
	source, out := make(scripted), &programs.Output{}
	o := &options{Factory: &cli.Factory{Err: out}, every: time.Millisecond, listen: programs.FreeAddress(t)}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- o.loop(ctx, enroll.New(config(t, source, func(*rest.Config) look { return *now.Load() })))
	}()
	one, none := []keystore.Name{"a"}, []keystore.Name(nil)
	const enrolled, wrong = "info: a cluster is enrolled: a ", "warn: a cluster is not in step: a "
	told := 0
	for _, step := range []struct {
		listing
		look look
		want []string // the lines of the log: level, message, cluster, state, what is said about it
	}{
		{listing{none, nil}, look{}, []string{"info: enrolling"}},
		{listing{none, errors.New("no directory")}, look{}, []string{"warn: the clusters or the store cannot be read; no key set changes"}},
		{listing{none, errors.New("no directory")}, look{}, nil},
		{listing{one, nil}, shows("uid-a", 1), []string{enrolled + "enrolled", "info: the clusters and the store can be read again"}},
		{listing{one, nil}, shows("uid-a", 1), nil}, // in step, and no news
		{listing{one, nil}, shows("uid-a", 2), []string{enrolled + "new key: key " + string(keys[1].ID()) + " since TIME, to be promoted from TIME on"}},
		{listing{one, nil}, away("connection refused"), []string{wrong + "unreachable: connection refused"}},
		{listing{one, nil}, away("no route"), nil},
		{listing{one, nil}, shows("uid-a", 2), []string{enrolled + "new key: key " + string(keys[1].ID()) + " since TIME, to be promoted from TIME on"}},
		{listing{one, nil}, shows("uid-b", 1), []string{wrong + "refused: it is another cluster (its UID is uid-b, that of the enrolled one uid-a); " +
			"if it takes the place of that: keypost rotate start a --kubeconfig FILE"}},
		{listing{none, nil}, shows("uid-b", 1), []string{wrong + "absent: the source has no such cluster; its issuer stays until: keypost issuer remove a"}},
	} {
		now.Store(&step.look)
		for _, l := range []listing{step.listing, step.listing} { // the second is asked for when the first pass is over
			select {
			case source <- l:
			case err := <-ended:
				t.Fatalf("the loop ended: %v\n%s", err, out)
			}
		}
		all := lines(out)
		if got, want := strings.Join(all[told:], "\n"), strings.Join(step.want, "\n"); got != want {
			t.Errorf("the log says\n%s\nwant\n%s", got, want)
		}
		told = len(all)
		if step.look.err != nil {
			serves(t, o.listen, `keypost_enroll_cluster{cluster="a",state="unreachable"} 1`)
		}
	}
	end()
	if err := <-ended; err != nil || !strings.HasSuffix(strings.Join(lines(out), "\n"), "info: stopped") {
		t.Errorf("it ends with %v, and says %s", err, out)
	}
}

var stamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// lines are those of a log without its times, and without what the admin listener says.
func lines(out *programs.Output) (all []string) {
	for _, l := range out.Lines() {
		if l["msg"] == "admin listener is up" {
			continue
		}
		text := fmt.Sprintf("%v: %v", l["level"], l["msg"])
		if l["cluster"] != nil {
			text += fmt.Sprintf(": %v %v", l["cluster"], l["state"])
		}
		if l["about"] != nil {
			text += fmt.Sprintf(": %v", l["about"])
		}
		all = append(all, stamp.ReplaceAllString(text, "TIME"))
	}
	return all
}

func serves(t *testing.T, address, want string) {
	t.Helper()
	res, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%v: no %s in\n%s", err, want, text)
	}
}

// A look at every cluster has a line for each, and fails while somebody has to act.
func TestOnce(t *testing.T) {
	t.Parallel()
	keys := []keystore.VerificationKey{storetest.Key(t), storetest.Key(t), storetest.Key(t)}
	all := map[string]look{
		"another": {Identity: cluster.Identity{ID: "uid-1", Keys: keys[:1]}},
		"away":    {Identity: cluster.Identity{ID: "uid-2", Keys: keys[:1]}},
		"gone":    {Identity: cluster.Identity{ID: "uid-3", Keys: keys[:1]}},
		"rotates": {Identity: cluster.Identity{ID: "uid-4", Keys: keys[:1]}},
		"same":    {Identity: cluster.Identity{ID: "uid-5", Keys: keys[:1]}},
	}
	source, out := make(scripted, 1), &programs.Output{}
	e := enroll.New(config(t, source, func(c *rest.Config) look { return all[c.Host] }))
	o := &options{Factory: &cli.Factory{Out: out, Err: io.Discard}}
	source <- listing{names: []keystore.Name{"another", "away", "gone", "rotates", "same"}}
	if err := o.lookOnce(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	all["another"] = look{Identity: cluster.Identity{ID: "uid-9", Keys: keys[2:]}}
	all["away"] = look{err: errors.New("connection refused")}
	all["rotates"] = look{Identity: cluster.Identity{ID: "uid-4", Keys: keys[:2]}}
	all["new"] = look{Identity: cluster.Identity{ID: "uid-6", Keys: keys[2:]}}
	source <- listing{names: []keystore.Name{"same", "rotates", "another", "away", "new"}}
	before := out.String()
	err := o.lookOnce(t.Context(), e)
	if err == nil || err.Error() != "2 of 6 clusters are refused or do not answer" {
		t.Errorf("%v", err)
	}
	got := strings.TrimPrefix(out.String(), before)
	for _, want := range []string{
		`another +refused +it is another cluster`, `away +unreachable +connection refused`,
		`gone +absent +https://oidc.example.com/gone +the source has no such cluster`, `new +enrolled +https://oidc.example.com/new`,
		`rotates +new key +https://oidc.example.com/rotates +key ` + string(keys[1].ID()) + ` since \S+, to be promoted from \S+ on`, `same +in step +https`,
	} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(got) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}
