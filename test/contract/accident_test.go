package contract

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// accident is something that happens to the directory of a running keypostd.
type accident struct {
	happens func(*estate)
	key     string // the key set that it happens to; default prod-a
	reason  string // told by metric, log and /issuers
}

// accidents. Whatever happens: no request for a document that was served fails, no revoked key comes back, and the
// reason is told.
func accidents() map[string]accident {
	dropped := func(e *estate) { e.edit(func(spec map[string]any) { spec["keys"] = spec["keys"].([]any)[:1] }) }
	return map[string]accident{
		"document removed":  {func(e *estate) { must(e.t, os.Remove(e.path("prod-a"))) }, "", "missing"},
		"directory emptied": {func(e *estate) { must(e.t, os.Remove(e.path("prod-a"))); must(e.t, os.Remove(e.path("prod-b"))) }, "prod-b", "missing"},
		"directory replaced by another": {func(e *estate) {
			must(e.t, os.Rename(e.dir, e.dir+".old"))
			must(e.t, os.Mkdir(e.dir, 0o755))
			e.create("prod-x", []string{"https://oidc.example.com/prod-x"})
		}, "", "missing"},
		"older generation restored": {func(e *estate) { e.write("prod-a", e.first) }, "", "older_generation"},
		"edited without generation": {func(e *estate) {
			e.edit(func(spec map[string]any) {
				spec["generation"] = 3
				spec["dev"] = false
				spec["policy"] = map[string]any{"maxAge": "2m"}
			})
		}, "", "same_generation"},
		"kid dropped by hand": {dropped, "", "kid_missing"},
		"a revoked key under another name": {func(e *estate) {
			e.edit(func(spec map[string]any) {
				leaked := keyEntry(e.t, e.leaked)
				leaked["kid"], leaked["importedKid"] = "looks-new", true
				spec["keys"] = append(spec["keys"].([]any), leaked)
			})
		}, "", "gone_returned"},
		"a generation out of reach": {func(e *estate) { e.edit(func(spec map[string]any) { spec["generation"] = 1<<53 - 1 }) }, "", "generation_jump"},
		"issuer URL dropped":        {func(e *estate) { e.edit(func(spec map[string]any) { spec["issuers"] = []string{urlShared} }) }, "", "url_dropped"},
		"newer schema": {func(e *estate) {
			e.write("prod-a", []byte(strings.Replace(string(e.now), "keypost.dev/v1", "keypost.dev/v2", 1)))
		}, "", "newer_version"},
		"binary junk":     {func(e *estate) { e.write("prod-a", []byte("\x7fELF\x02\x01\x01\x00\xff\xfe")) }, "", "broken"},
		"half a document": {func(e *estate) { must(e.t, os.Truncate(e.path("prod-a"), int64(len(e.now)/2))) }, "", "broken"},
		"huge file":       {func(e *estate) { must(e.t, os.Truncate(e.path("prod-a"), 1<<30)) }, "", "broken"},
		"merge conflict": {func(e *estate) {
			e.write("prod-a", []byte("<<<<<<< HEAD\n"+string(e.now)+"=======\n"+string(e.first)+">>>>>>> x\n"))
		}, "", "broken"},
		"a FIFO in its place": {func(e *estate) {
			must(e.t, os.Remove(e.path("prod-a")))
			must(e.t, syscall.Mkfifo(e.path("prod-a"), 0o644))
		}, "", "broken"},
		"a link to nowhere": {func(e *estate) {
			must(e.t, os.Remove(e.path("prod-a")))
			must(e.t, os.Symlink("/nonexistent", e.path("prod-a")))
		}, "", "missing"},
		"unreadable file":            {func(e *estate) { must(e.t, os.Chmod(e.path("prod-a"), 0)) }, "", "unreadable"},
		"another's URL":              {func(e *estate) { e.create("prod-c", []string{urlShared}) }, "prod-c", "url_conflict"},
		"a URL outside the patterns": {func(e *estate) { e.create("prod-d", []string{urlA}) }, "prod-d", "url_not_permitted"},
		"a new document is broken":   {func(e *estate) { e.write("prod-e", []byte("junk")) }, "prod-e", "broken"},
		"named .yml":                 {func(e *estate) { must(e.t, os.WriteFile(filepath.Join(e.dir, "prod-f.yml"), e.now, 0o644)) }, "prod-f.yml", "broken"},
	}
}

// keyEntry is a key as it stands in a document.
func keyEntry(t *testing.T, k keystore.VerificationKey) map[string]any {
	t.Helper()
	var d map[string]any
	must(t, yaml.Unmarshal([]byte(storetest.Text(t, storetest.KeySet(t, "x", k))), &d))
	return d["spec"].(map[string]any)["keys"].([]any)[0].(map[string]any)
}

func TestAccidents(t *testing.T) {
	for name, a := range accidents() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEstate(t)
			if os.Getuid() == 0 {
				e.uid = 65534 // root could read anything
			}
			v := ready(t, e.settings)
			parties := []*relyingParty{
				v.rely(t, urlA, []keystore.VerificationKey{e.stays, e.alsoStays}, []keystore.VerificationKey{e.leaked}),
				v.rely(t, urlB, nil, nil),
			}
			a.happens(e)
			a.checkTold(t, v)
			for _, p := range parties {
				p.more(30)
			}
			a.checkTold(t, v) // still, and once
			e.mend()
			v.Await(t, "the mended document", func() error {
				if s := v.statusOf(t, "prod-a"); s.Generation != 9 || s.Rejected != "" {
					return fmt.Errorf("%+v", s)
				}
				return nil
			})
			for _, p := range parties {
				p.more(10)
				p.end()
			}
		})
	}
}

// checkTold waits until metric, log and /issuers tell the reason.
func (a accident) checkTold(t *testing.T, v *server) {
	t.Helper()
	key := a.key
	if key == "" {
		key = "prod-a"
	}
	v.Await(t, "told in /issuers", func() error {
		if s := v.statusOf(t, key); s.Rejected != a.reason || s.Message == "" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if n := v.metric(t, fmt.Sprintf("keypost_key_sets_rejected{reason=%q}", a.reason)); n == "0" {
		t.Errorf("the metric counts %s key sets as %s", n, a.reason)
	}
	if status, body := v.ask(t, "/readyz"); status != 200 {
		t.Errorf("unready: %s", body)
	}
	told := v.logged("key set rejected", "key_set:"+key, "reason:"+a.reason)
	if a.reason == "missing" {
		told = v.logged("key set is missing", "key_set:"+key)
	}
	if told != 1 {
		t.Errorf("%d log lines tell it, want one", told)
	}
}

// The directory as a whole is out of reach: nothing is concluded about any key set.
func TestDirectoryOutOfReach(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	v := ready(t, e.settings)
	p := v.rely(t, urlA, []keystore.VerificationKey{e.stays, e.alsoStays}, []keystore.VerificationKey{e.leaked})
	must(t, os.Rename(e.dir, e.dir+".old"))
	v.Await(t, "the metric", func() error {
		if n := v.metric(t, "keypost_key_sets_read_failing"); n != "1" {
			return fmt.Errorf("it is %s", n)
		}
		return nil
	})
	if s := v.statusOf(t, "prod-a"); s.Rejected != "" || !s.Served {
		t.Errorf("%+v", s)
	}
	p.more(50)
	must(t, os.Rename(e.dir+".old", e.dir))
	e.mend()
	v.Await(t, "the next change", func() error {
		if s := v.statusOf(t, "prod-a"); s.Generation != 9 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	const back = "the watch on the key sets is back" // a poll may have been faster
	v.Await(t, "the watch", func() error {
		if v.logged(back) == 0 {
			return fmt.Errorf("no line %q", back)
		}
		return nil
	})
	p.end()
	for _, message := range []string{"key sets cannot be listed", "key sets can be listed again", "the watch on the key sets was lost", back} {
		if n := v.logged(message); n != 1 {
			t.Errorf("%d lines %q, want one", n, message)
		}
	}
}

// A private key in a document is refused, and nowhere repeated.
func TestPrivateKeyInADocument(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	secret := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	e := newEstate(t)
	v := ready(t, e.settings)
	p := v.rely(t, urlA, []keystore.VerificationKey{e.stays, e.alsoStays}, []keystore.VerificationKey{e.leaked})
	e.edit(func(spec map[string]any) { spec["keys"].([]any)[0].(map[string]any)["publicKey"] = secret })
	accident{key: "prod-a", reason: "broken"}.checkTold(t, v)
	p.more(20)
	p.end()
	_, report := v.ask(t, "/issuers")
	if !strings.Contains(report, "private key") {
		t.Errorf("the report does not say what is wrong: %s", report)
	}
	for line := range strings.Lines(secret) {
		if line = strings.TrimSpace(line); len(line) > 30 && strings.Contains(report+v.Output.String(), line[:30]) {
			t.Errorf("a part of the private key is in the log or the report")
		}
	}
}

// A change is served within a second of its rename: by the watch, since five polls are not as fast.
func TestChangeIsServedWithinASecond(t *testing.T) {
	e := newEstate(t)
	e.extra = "poll: 15s\n"
	v := ready(t, e.settings)
	c := v.client(t)
	fastest := time.Hour
	for range 5 {
		k := storetest.Key(t)
		e.update("prod-b", func(s keystore.KeySet) (keystore.KeySet, error) { return s.Add(storetest.Change(3*time.Hour), k) })
		began := time.Now()
		v.Await(t, "the new key", func() error { return checkKeys(c, urlB+"/keys.json", []keystore.VerificationKey{k}, nil) })
		fastest = min(fastest, time.Since(began))
	}
	t.Logf("the fastest of five changes was served after %v", fastest)
	if fastest > time.Second {
		t.Errorf("the fastest of five changes was served after %v", fastest)
	}
}

// A tombstone is the one way in which documents leave.
func TestTombstone(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	v := ready(t, e.settings)
	c := v.client(t)
	e.update("prod-b", func(s keystore.KeySet) (keystore.KeySet, error) { return s.Withdraw(storetest.Change(time.Hour)) })
	v.Await(t, "404", func() error {
		if status, _ := get(t, c, urlB+"/keys.json"); status != 404 {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
	if status, _ := get(t, c, urlA+"/keys.json"); status != 200 {
		t.Errorf("the other issuer answers %d", status)
	}
}
