package issuer

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/storetest"
)

// troubled holds one key set of every kind: whole, missing, rejected and served, rejected and not served, withdrawn.
func troubled(t *testing.T) *bench {
	b := newBench(t)
	two := []keystore.State{keystore.Next, keystore.Active}
	b.put(
		doc{name: "a", generation: 1, keys: []keystore.VerificationKey{key(t, 1), key(t, 2)}, states: two},
		doc{name: "b", generation: 2, keys: []keystore.VerificationKey{key(t, 3)}, issuers: []string{urlB, "https://b.oidc.example.com"}},
		doc{name: "c", generation: 3, keys: []keystore.VerificationKey{key(t, 4)}},
		doc{name: "w", generation: 4, keys: []keystore.VerificationKey{key(t, 5)}, withdrawn: true})
	b.poll()
	b.store.Delete("b")
	b.put(doc{name: "c", generation: 2})
	b.store.Set("d", []byte("junk"))
	b.poll()
	return b
}

func TestReport(t *testing.T) {
	b := troubled(t)
	r := b.Report()
	if age := time.Since(r.Complete); age < 0 || age > time.Minute {
		t.Errorf("the last complete reading was %v ago", age)
	}
	r.Complete = time.Time{}
	for i, is := range r.Issuers {
		if (is.Digest == "") != (is.Generation == 0) {
			t.Errorf("%s: generation %d with the digest %q", is.Name, is.Generation, is.Digest)
		}
		r.Issuers[i].Digest = ""
	}
	got, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
 "issuers": [
  {"name": "a", "issuers": ["https://oidc.example.com/a"], "generation": 1, "served": true, "keys": {"active": 1, "next": 1, "retired": 0}},
  {"name": "b", "issuers": ["https://oidc.example.com/b", "https://b.oidc.example.com"], "generation": 2, "served": true, "rejected": "missing",
   "message": "the store does not hold it; its last good version stays", "keys": {"active": 1, "next": 0, "retired": 0}},
  {"name": "c", "issuers": ["https://oidc.example.com/c"], "generation": 3, "served": true, "rejected": "older_generation",
   "message": "its generation is 2, older than 3 of the last good version", "keys": {"active": 1, "next": 0, "retired": 0}},
  {"name": "d", "issuers": [], "generation": 0, "served": false, "rejected": "broken", "message": "it is not a manifest with apiVersion and kind", "keys": {}},
  {"name": "w", "issuers": ["https://oidc.example.com/w"], "generation": 4, "served": false, "keys": {"active": 1, "next": 0, "retired": 0}}
 ]
}`
	if canonical(t, string(got)) != canonical(t, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAgeOfTheLastCompleteReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		const name = "keypost_key_sets_last_complete_read_timestamp_seconds"
		check := func(want string) {
			t.Helper()
			text := "# HELP " + name + " When everything in the store was last listed and read; 0 for never.\n# TYPE " + name + " gauge\n" + name + " " + want + "\n"
			if err := testutil.CollectAndCompare(b.Publisher, strings.NewReader(text), name); err != nil {
				t.Error(err)
			}
		}
		check("0")
		time.Sleep(500 * time.Millisecond)
		b.poll() // synctest begins at midnight UTC 2000-01-01
		check("9.466848005e+08")
		b.store.Inject(failing(storetest.OpList, errors.New("connection refused")))
		time.Sleep(time.Minute)
		if err := b.Refresh(t.Context()); err == nil {
			t.Fatal("no error")
		}
		check("9.466848005e+08")
	})
}

// Anyone who is paged looks for the reason in the runbook.
func TestEveryReasonIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../charts/keypost/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range lastgood.Reasons() {
		if !strings.Contains(string(text), "`"+string(r)+"`") {
			t.Errorf("the runbook does not say what the reason %s means", r)
		}
	}
}
