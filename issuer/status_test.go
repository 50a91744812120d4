package issuer

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

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

func TestMetrics(t *testing.T) {
	b := troubled(t)
	check := func(want string, names ...string) {
		t.Helper()
		if err := testutil.CollectAndCompare(b.Publisher, strings.NewReader(want), names...); err != nil {
			t.Error(err)
		}
	}
	check(`
# HELP keypost_issuers Issuer URLs whose documents are served.
# TYPE keypost_issuers gauge
keypost_issuers 4
# HELP keypost_keys Published keys by state.
# TYPE keypost_keys gauge
keypost_keys{state="active"} 3
keypost_keys{state="next"} 1
keypost_keys{state="retired"} 0
# HELP keypost_oldest_active_key_timestamp_seconds When the key that may sign for the longest time of all was allowed to; 0 when none may. A key taken over from elsewhere counts from then.
# TYPE keypost_oldest_active_key_timestamp_seconds gauge
keypost_oldest_active_key_timestamp_seconds `+strconv.FormatInt(storetest.Time(0).Unix(), 10)+`
# HELP keypost_key_sets_rejected Key sets whose stored version is not served, by reason; the last good version is.
# TYPE keypost_key_sets_rejected gauge
keypost_key_sets_rejected{reason="broken"} 1
keypost_key_sets_rejected{reason="dev"} 0
keypost_key_sets_rejected{reason="generation_jump"} 0
keypost_key_sets_rejected{reason="gone_returned"} 0
keypost_key_sets_rejected{reason="key_changed"} 0
keypost_key_sets_rejected{reason="kid_missing"} 0
keypost_key_sets_rejected{reason="missing"} 1
keypost_key_sets_rejected{reason="newer_version"} 0
keypost_key_sets_rejected{reason="older_generation"} 1
keypost_key_sets_rejected{reason="same_generation"} 0
keypost_key_sets_rejected{reason="unreadable"} 0
keypost_key_sets_rejected{reason="url_conflict"} 0
keypost_key_sets_rejected{reason="url_dropped"} 0
keypost_key_sets_rejected{reason="url_not_permitted"} 0
# HELP keypost_key_sets_read_failing 1 while the store cannot be listed.
# TYPE keypost_key_sets_read_failing gauge
keypost_key_sets_read_failing 0
`, "keypost_issuers", "keypost_keys", "keypost_key_sets_rejected", "keypost_key_sets_read_failing", "keypost_oldest_active_key_timestamp_seconds")

	b.store.Inject(failing(storetest.OpList, errors.New("connection refused")))
	if err := b.Refresh(t.Context()); err == nil {
		t.Fatal("no error")
	}
	check(`
# HELP keypost_key_sets_read_failing 1 while the store cannot be listed.
# TYPE keypost_key_sets_read_failing gauge
keypost_key_sets_read_failing 1
`, "keypost_key_sets_read_failing")
	if problems, err := testutil.CollectAndLint(b.Publisher); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	if problems, err := testutil.CollectAndLint(b.http); err != nil || len(problems) > 0 {
		t.Error(problems, err)
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

// A reason that nobody has listed is counted all the same.
func TestUnlistedReasonIsCounted(t *testing.T) {
	p := NewPublisher(Config{Log: zap.NewNop()})
	p.entries["prod-a"] = &entry{rejected: lastgood.Reject("unheard_of", "it is unheard of")}
	if n := testutil.CollectAndCount(p, "keypost_key_sets_rejected"); n != len(lastgood.Reasons())+1 {
		t.Errorf("%d reasons are counted", n)
	}
}
