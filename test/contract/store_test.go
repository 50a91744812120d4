package contract

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/process"
)

const (
	urlA      = "https://oidc.example.com/prod-a"
	urlB      = "https://prod-b.oidc.example.com"
	urlShared = "https://shared.example.com" // which names prod-a, prod-b and prod-c may have
)

// estate is a directory with a history: prod-a had two keys, one was revoked, another came; prod-b had no events.
type estate struct {
	settings
	t                        *testing.T
	first, now               []byte // documents of prod-a: the first generation, the third and current one
	stays, alsoStays, leaked keystore.VerificationKey
}

func newEstate(t *testing.T) *estate {
	t.Helper()
	e := &estate{settings: newSettings(t), t: t, stays: storetest.Key(t), alsoStays: storetest.Key(t), leaked: storetest.Key(t)}
	e.create("prod-a", []string{urlA, urlShared}, e.stays, e.leaked)
	e.first = e.read("prod-a")
	e.update("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Revoke(storetest.Change(time.Hour), e.leaked.ID(), keystore.RevokeOptions{})
	})
	e.update("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Add(storetest.Change(2*time.Hour), e.alsoStays)
	})
	e.now = e.read("prod-a")
	e.create("prod-b", []string{urlB})
	return e
}

func (e *estate) path(name string) string { return filepath.Join(e.dir, name+".yaml") }

func (e *estate) store() *filestore.Backend {
	e.t.Helper()
	st, err := filestore.Open(e.dir)
	must(e.t, err)
	return st
}

func (e *estate) create(name string, issuers []string, keys ...keystore.VerificationKey) {
	e.t.Helper()
	if len(keys) == 0 {
		keys = append(keys, storetest.Key(e.t))
	}
	s, err := keystore.New(keystore.Change{At: storetest.Time(0), By: "ops"}, keystore.Spec{Name: keystore.Name(name), Issuers: storetest.URLs(e.t, issuers...), Keys: keys})
	must(e.t, err)
	must(e.t, keystore.Create(e.t.Context(), keystore.NewStore(e.store()), s))
}

func (e *estate) update(name string, change func(keystore.KeySet) (keystore.KeySet, error)) {
	e.t.Helper()
	_, err := keystore.Update(e.t.Context(), keystore.NewStore(e.store()), keystore.Name(name), change)
	must(e.t, err)
}

func (e *estate) read(name string) []byte {
	e.t.Helper()
	data, err := os.ReadFile(e.path(name))
	must(e.t, err)
	return data
}

// write replaces a document as an editor or a checkout does, without the store's checks.
func (e *estate) write(name string, data []byte) {
	e.t.Helper()
	temp := filepath.Join(e.dir, ".edit")
	must(e.t, os.WriteFile(temp, data, 0o644))
	must(e.t, os.Rename(temp, e.path(name)))
}

// edit changes the current document of prod-a by hand, and its generation to the next one.
func (e *estate) edit(change func(spec map[string]any)) {
	e.t.Helper()
	var d map[string]any
	must(e.t, yaml.Unmarshal(e.now, &d))
	spec := d["spec"].(map[string]any)
	spec["generation"] = 4
	change(spec)
	data, err := yaml.Marshal(d)
	must(e.t, err)
	e.write("prod-a", data)
}

// mend puts a good next version in place of whatever there is.
func (e *estate) mend() {
	e.t.Helper()
	must(e.t, os.MkdirAll(e.dir, 0o755))
	must(e.t, os.RemoveAll(e.path("prod-a")))
	e.edit(func(spec map[string]any) { spec["generation"] = 9 })
}

// awaitMended waits until what mend wrote is served.
func (v *server) awaitMended(t *testing.T) {
	t.Helper()
	v.Await(t, "the mended document", func() error {
		if s := v.statusOf(t, "prod-a"); s.Generation != 9 || s.Rejected != "" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// status is the part of /issuers that tests look at.
type status struct {
	Name       string
	Generation int64
	Served     bool
	Rejected   string
	Message    string
}

func (v *server) statusOf(t *testing.T, name string) status {
	t.Helper()
	var report struct{ Issuers []status }
	_, body := v.ask(t, "/issuers")
	must(t, yaml.Unmarshal([]byte(body), &report))
	for _, s := range report.Issuers {
		if s.Name == name {
			return s
		}
	}
	return status{}
}

// metric returns the value of one line of /metrics, such as `keypost_issuers`.
func (v *server) metric(t *testing.T, series string) string {
	t.Helper()
	_, body := v.ask(t, "/metrics")
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(body)
	if m == nil {
		t.Fatalf("no metric %s in:\n%s", series, body)
	}
	return m[1]
}

// logged counts the lines with a message and fields.
func (v *server) logged(message string, fields ...string) int {
	n := 0
	for _, l := range v.Output.Lines() {
		text := fmt.Sprint(l)
		if strings.HasPrefix(fmt.Sprint(l["msg"]), message) && !slices.ContainsFunc(fields, func(f string) bool { return !strings.Contains(text, f) }) {
			n++
		}
	}
	return n
}

// relyingParty asks for documents all the time and remembers what went wrong.
type relyingParty struct {
	t        *testing.T
	requests atomic.Int64
	stopped  chan struct{}
	stop     sync.Once
	done     sync.WaitGroup
}

// rely begins to ask for the JWKS of issuers. Each must be answered with 200 and with every kid of have, never with
// one of not.
func (v *server) rely(t *testing.T, issuer string, have, not []keystore.VerificationKey) *relyingParty {
	t.Helper()
	p := &relyingParty{t: t, stopped: make(chan struct{})}
	kept, fresh := v.client(t), v.client(t)
	fresh.Transport.(*http.Transport).DisableKeepAlives = true
	for i, c := range []*http.Client{kept, fresh} {
		p.done.Go(func() {
			for n := 0; !p.over(); n++ {
				path := []string{"/keys.json", "/openid/v1/jwks"}[n%2]
				if err := checkKeys(c, issuer+path, have, not); err != nil {
					t.Errorf("relying party %d, request %d for %s: %v", i, n, issuer, err)
					return
				}
				p.requests.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	t.Cleanup(p.end)
	p.more(20)
	return p
}

func checkKeys(c *http.Client, url string, have, not []keystore.VerificationKey) error {
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	body := string(data)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	for _, k := range have {
		if !strings.Contains(body, string(k.ID())) {
			return fmt.Errorf("key %s is missing in %s", k.ID(), body)
		}
	}
	for _, k := range not {
		if strings.Contains(body, string(k.ID())) {
			return fmt.Errorf("key %s is there: %s", k.ID(), body)
		}
	}
	return nil
}

func (p *relyingParty) over() bool {
	select {
	case <-p.stopped:
		return true
	default:
		return p.t.Failed()
	}
}

// more waits until that many more requests were answered well.
func (p *relyingParty) more(n int64) {
	p.t.Helper()
	want := p.requests.Load() + n
	process.Await(p.t, "requests that go well", func() error {
		if got := p.requests.Load(); got < want && !p.t.Failed() {
			return fmt.Errorf("%d of %d", got, want)
		}
		return nil
	})
}

func (p *relyingParty) end() {
	p.stop.Do(func() { close(p.stopped) })
	p.done.Wait()
}
