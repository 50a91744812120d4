//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/storetest"
)

const mirrorAdmin = "http://127.0.0.1:9091"

// outageTime is how long a store is away: several polls of the publisher.
const outageTime = 3 * time.Second

// source is a real store to be mirrored, and what can happen to it.
type source struct {
	url, elsewhere string   // the second is what a mistyped prefix or namespace leads to
	env            []string // the mirror's credentials
	poll           time.Duration
	store          *keystore.Store                    // with an administrator's rights
	away, back     func()                             // the store is down
	forbid, permit func()                             // the mirror loses its rights
	empty          func()                             // everything vanishes
	recreate       func()                             // the place where key sets are is deleted and made again
	put            func(n keystore.Name, text string) // in place of whatever there is, past all checks
}

// TestMirrorKubernetes runs keypost mirror and keypostd as they are deployed, on a real store to which
// everything happens that can: not one document request fails, no revoked key returns, and the metrics tell.
func TestMirrorKubernetes(t *testing.T) { newMirrorScene(t, kubeSource(t)).run() }

func kubeSource(t *testing.T) *source {
	p := newKubeScene(t)
	ns := p.space(t)
	reader := p.account(t, ns, "mirror", readerRules)
	s := &source{
		url: "kubernetes://" + ns + "?kubeconfig=" + reader, elsewhere: "kubernetes://default?kubeconfig=" + p.admin, poll: 5 * time.Second,
		store: keystore.NewStore(p.store(t, ns)),
		away:  func() { p.stopAPI(); p.stopEtcd() },
		back:  func() { p.startEtcd(); p.startAPI() },
		empty: func() { p.try(t, "", "delete", "keysets", "--all", "-n", ns).ok(t) },
	}
	s.forbid = func() { p.try(t, "", "delete", "rolebinding", "mirror", "-n", ns).ok(t) }
	s.permit = func() {
		p.try(t, "", "create", "rolebinding", "mirror", "-n", ns, "--role", "mirror", "--serviceaccount", ns+":mirror").ok(t)
	}
	s.recreate = func() {
		p.try(t, "", "delete", "crd", "keysets.keypost.dev").ok(t)
		time.Sleep(outageTime)
		p.define(t)
	}
	s.put = func(n keystore.Name, text string) {
		p.try(t, "", "delete", "keyset", string(n), "-n", ns, "--ignore-not-found").ok(t)
		p.try(t, text, "create", "-n", ns, "-f", "-").ok(t)
	}
	return s
}

// mirrorScene is a mirror with its source, the directory that it writes, keypostd on that, and a client that asks all
// the time.
type mirrorScene struct {
	*source
	*server
	t      *testing.T
	mirror *process
	older  map[keystore.Name]string // documents from before the revocation
	issuer map[keystore.Name]string
	keys   map[keystore.Name][]keystore.VerificationKey // that were ever published

	mu    sync.RWMutex            // held while keypostd is replaced, and for reading during a request
	never map[keystore.KeyID]bool // no answer may have it
	asked int
	end   chan struct{}
	ended chan error
}

func newMirrorScene(t *testing.T, s *source) *mirrorScene {
	t.Helper()
	m := &mirrorScene{
		source: s, server: newStore(t, newAuthority(t)), t: t, older: map[keystore.Name]string{}, issuer: map[keystore.Name]string{},
		keys: map[keystore.Name][]keystore.VerificationKey{}, never: map[keystore.KeyID]bool{}, end: make(chan struct{}), ended: make(chan error, 1),
	}
	for i := range 5 {
		n := numbered(i)
		m.issuer[n] = "https://oidc.keypost.test/" + string(n)
		m.keys[n] = []keystore.VerificationKey{storetest.Key(t), storetest.Key(t)}
		k, err := keystore.New(keystore.Change{At: storetest.Time(0)}, keystore.Spec{Name: n, Issuers: storetest.URLs(t, m.issuer[n]), Keys: m.keys[n]})
		must(t, err)
		must(t, keystore.Create(t.Context(), s.store, k))
		m.older[n] = storetest.Text(t, k)
	}
	m.startMirror(s.url)
	m.server.run(t)
	go m.ask()
	return m
}

func (m *mirrorScene) startMirror(url string) {
	m.t.Helper()
	m.mirror = start(m.t, "mirror", "env", append(append([]string{}, m.env...), binary("keypost"), "mirror", "--store", url, "--poll", m.poll.String(),
		"--issuer-url", "https://oidc.keypost.test/{name}", "--admin-address", "127.0.0.1:9091", m.server.store)...)
	m.mirror.await(m.t, "ready", func(ctx context.Context) error { return expect(ctx, http.DefaultClient, mirrorAdmin+"/readyz", "") })
}

func (m *mirrorScene) stopMirror() {
	m.t.Helper()
	if code := m.mirror.stop(m.t, 10*time.Second); code != 0 {
		m.t.Errorf("the mirror ended with exit code %d", code)
	}
}

// restartServer takes its memory from keypostd: what it serves afterwards is what the directory has.
func (m *mirrorScene) restartServer() {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Kill()
	m.server.run(m.t)
}

// ask asks for every document in turn until the scene ends, or an answer was wrong.
func (m *mirrorScene) ask() {
	client := m.ca.client()
	for {
		for _, issuer := range m.issuer {
			if err := m.askOne(client, issuer+"/keys.json"); err != nil {
				m.ended <- err
				return
			}
		}
		select {
		case <-m.end:
			m.ended <- nil
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (m *mirrorScene) askOne(client *http.Client, url string) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	m.asked++
	res, err := client.Get(url)
	if err != nil {
		client.CloseIdleConnections() // those of a server that was replaced
		if res, err = client.Get(url); err != nil {
			return err
		}
	}
	defer res.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(res.Body); err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %w", url, res.Status, err)
	}
	for kid := range m.never {
		if strings.Contains(body.String(), string(kid)) {
			return fmt.Errorf("%s: the revoked key %s is back", url, kid)
		}
	}
	return nil
}

// run lets one thing after the other happen.
func (m *mirrorScene) run() {
	for _, c := range []struct {
		name    string
		full    bool // only in make e2e-full
		happens func(*testing.T)
	}{
		{"the store is away", false, m.storeAway},
		{"everything is replaced while the store is away", true, m.replacedDuringAnOutage},
		{"the mirror loses its rights", false, m.rightsLost},
		{"the prefix is wrong", true, m.elsewhereFor},
		{"everything vanishes, and an old backup comes back", false, m.emptied},
		{"the place is made anew", true, m.recreated},
		{"something puts an older document back all the time", true, m.reverted},
	} {
		if c.full && !full {
			continue
		}
		m.t.Run(c.name, func(t *testing.T) {
			c.happens(t)
			m.change(t)
		})
	}
	close(m.end)
	if err := <-m.ended; err != nil {
		m.t.Errorf("after %d requests: %v", m.asked, err)
	}
	m.t.Logf("%d document requests", m.asked)
}

// change makes a change, whatever it takes to have one accepted, and waits until it is served.
func (m *mirrorScene) change(t *testing.T) {
	t.Helper()
	for n := range m.issuer {
		k := storetest.Key(t)
		served := m.servedGeneration(t, n)
		m.update(t, n, func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.Accept(storetest.Change(24*time.Hour), served, m.decided(n))
		})
		m.update(t, n, func(s keystore.KeySet) (keystore.KeySet, error) { return s.Add(storetest.Change(24*time.Hour), k) })
		m.keys[n] = append(m.keys[n], k)
		began := time.Now()
		await(t, "the change is served", func(ctx context.Context) error {
			if !strings.Contains(string(get(t, m.ca.client(), m.issuer[n]+"/keys.json")), string(k.ID())) {
				return fmt.Errorf("%s does not serve %s", n, k.ID())
			}
			return nil
		})
		t.Logf("a change of %s was served after %v", n, time.Since(began).Round(time.Millisecond))
		break
	}
	m.wantMetric(t, "keypost_mirror_failing", "0")
}

// update waits until the store can be written.
func (m *mirrorScene) update(t *testing.T, n keystore.Name, change func(keystore.KeySet) (keystore.KeySet, error)) {
	t.Helper()
	var last error
	await(t, "a change is written", func(ctx context.Context) error {
		_, err := keystore.Update(ctx, m.source.store, n, change)
		if ctx.Err() != nil {
			return last
		}
		last = err
		return err
	})
}

// decided settles every key that was ever published: what was revoked is gone, and all else stays.
func (m *mirrorScene) decided(n keystore.Name) (d keystore.Decided) {
	for _, k := range m.keys[n] {
		if m.never[k.ID()] {
			d.Gone = append(d.Gone, keystore.Gone{ID: k.ID(), Fingerprint: k.Fingerprint(), Why: keystore.Removed})
			continue
		}
		d.Keep = append(d.Keep, k)
	}
	return d
}

func (m *mirrorScene) servedGeneration(t *testing.T, n keystore.Name) int64 {
	t.Helper()
	for _, i := range object(t, get(t, http.DefaultClient, admin+"/issuers"))["issuers"].([]any) {
		if i := i.(map[string]any); i["name"] == string(n) {
			return int64(i["generation"].(float64))
		}
	}
	return 0
}

// wantMetric waits until the mirror tells.
func (m *mirrorScene) wantMetric(t *testing.T, series, value string) {
	t.Helper()
	await(t, series+" "+value, func(context.Context) error {
		text := string(get(t, http.DefaultClient, mirrorAdmin+"/metrics"))
		got := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(text)
		if got == nil || got[1] != value {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}

func (m *mirrorScene) refused(reason keystore.Reason) string {
	return fmt.Sprintf("keypost_mirror_key_sets_refused{reason=%q}", reason)
}

func (m *mirrorScene) storeAway(t *testing.T) {
	m.away()
	m.wantMetric(t, "keypost_mirror_failing", "1")
	time.Sleep(outageTime)
	m.back()
}

func (m *mirrorScene) replacedDuringAnOutage(t *testing.T) {
	m.away()
	m.stopMirror()
	m.restartServer()
	m.startMirror(m.url)
	m.restartServer()
	m.wantMetric(t, "keypost_mirror_failing", "1")
	m.back()
}

func (m *mirrorScene) rightsLost(t *testing.T) {
	m.forbid()
	m.wantMetric(t, "keypost_mirror_failing", "1")
	time.Sleep(outageTime)
	m.restartServer()
	m.permit()
}

func (m *mirrorScene) elsewhereFor(t *testing.T) {
	m.stopMirror()
	m.startMirror(m.elsewhere)
	m.wantMetric(t, m.refused(lastgood.ReasonMissing), "5")
	m.restartServer()
	m.stopMirror()
	m.startMirror(m.url)
	m.wantMetric(t, m.refused(lastgood.ReasonMissing), "0")
}

// revoke takes a key of every set away; from the moment that this is served, no answer may have it.
func (m *mirrorScene) revoke(t *testing.T) {
	t.Helper()
	for n := range m.issuer {
		var kid keystore.KeyID
		_, err := keystore.Update(t.Context(), m.source.store, n, func(s keystore.KeySet) (keystore.KeySet, error) {
			kid = s.Keys()[0].ID()
			return s.Revoke(storetest.Change(48*time.Hour), kid, keystore.RevokeOptions{})
		})
		must(t, err)
		await(t, "the revocation is served", func(context.Context) error {
			if strings.Contains(string(get(t, m.ca.client(), m.issuer[n]+"/keys.json")), string(kid)) {
				return fmt.Errorf("%s serves %s", n, kid)
			}
			return nil
		})
		m.mu.Lock()
		m.never[kid] = true
		m.mu.Unlock()
	}
}

func (m *mirrorScene) putOlder() {
	for n, text := range m.older {
		m.put(n, text)
	}
}

func (m *mirrorScene) emptied(t *testing.T) {
	m.revoke(t)
	m.empty()
	m.wantMetric(t, m.refused(lastgood.ReasonMissing), "5")
	m.restartServer()
	m.putOlder()
	m.wantMetric(t, m.refused(lastgood.ReasonOlderGeneration), "5")
	m.stopMirror()
	m.restartServer()
	m.startMirror(m.url)
	m.wantMetric(t, m.refused(lastgood.ReasonOlderGeneration), "5")
}

func (m *mirrorScene) recreated(t *testing.T) {
	m.recreate()
	m.wantMetric(t, m.refused(lastgood.ReasonMissing), "5")
	m.restartServer()
	m.putOlder()
	m.wantMetric(t, m.refused(lastgood.ReasonOlderGeneration), "5")
}

// reverted is a continuous deployment that prunes and puts an old manifest back every second.
func (m *mirrorScene) reverted(t *testing.T) {
	for range 10 {
		m.empty()
		m.putOlder()
		time.Sleep(time.Second)
	}
	m.wantMetric(t, m.refused(lastgood.ReasonOlderGeneration), "5")
	m.restartServer()
}
