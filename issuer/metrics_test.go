package issuer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// values returns the series of a metric that the publisher makes, by their labels.
func (b *bench) values(name string) string {
	var got []string
	registry, page := prometheus.NewRegistry(), httptest.NewRecorder()
	registry.MustRegister(b.Publisher)
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if series, is := strings.CutPrefix(strings.TrimSpace(line), name); is {
			labels, value, _ := strings.Cut(series, " ")
			f, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s %d", labels, int64(f)))
		}
	}
	return strings.Join(got, "\n")
}

func TestMetricsOfKeySets(t *testing.T) {
	b := troubled(t)
	first := storetest.Time(0).Unix()
	for name, want := range map[string]string{
		"keypost_key_set_rejected":                            `{key_set="b",reason="missing"} 1` + "\n" + `{key_set="c",reason="older_generation"} 1` + "\n" + `{key_set="d",reason="broken"} 1`,
		"keypost_key_set_oldest_active_key_timestamp_seconds": fmt.Sprintf("{key_set=%q} %d\n{key_set=%q} %d\n{key_set=%q} %d", "a", first, "b", first, "c", first),
		"keypost_key_set_forced_promotion_timestamp_seconds":  "",
		"keypost_issuers":                                     " 4",
		"keypost_keys":                                        `{state="active"} 3` + "\n" + `{state="next"} 1` + "\n" + `{state="retired"} 0`,
		"keypost_oldest_active_key_timestamp_seconds":         fmt.Sprintf(" %d", first),
		"keypost_key_sets_read_failing":                       " 0",
	} {
		if got := b.values(name); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	if all := b.values("keypost_key_sets_rejected"); !strings.Contains(all, `{reason="broken"} 1`) || !strings.Contains(all, `{reason="dev"} 0`) {
		t.Errorf("rejected: %s", all)
	}
}

// Who writes a document by hand dates it as he likes: what a process has seen change counts as well.
func TestWhenKeysChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const changed, forced = "keypost_key_set_keys_changed_timestamp_seconds", "keypost_key_set_forced_promotion_timestamp_seconds"
		b := newBench(t)
		check := func(what, metric string, want time.Time) {
			t.Helper()
			if got := b.values(metric); got != fmt.Sprintf("{key_set=\"a\"} %d", want.Unix()) {
				t.Errorf("%s: %s%s, want %d", what, metric, got, want.Unix())
			}
		}
		time.Sleep(time.Until(storetest.Time(0))) // the bubble begins in 2000
		put := func(d doc) time.Time {
			time.Sleep(time.Hour)
			d.name = "a"
			b.put(d)
			b.poll()
			return time.Now()
		}
		two := []keystore.VerificationKey{key(t, 1), key(t, 2)}
		put(doc{generation: 1, keys: two[:1]})
		check("as dated at the start", changed, storetest.Time(0))
		put(doc{generation: 2, keys: two[:1], policy: map[string]any{"maxAge": "2m"}})
		check("no key has changed", changed, storetest.Time(0))
		added := put(doc{generation: 3, keys: two, states: []keystore.State{keystore.Active, keystore.Next}})
		check("a key that is dated back", changed, added)
		put(doc{generation: 4, keys: two, states: []keystore.State{keystore.Active, keystore.Next}, policy: map[string]any{"maxAge": "3m"}})
		check("no key has changed since", changed, added)
		swapped := put(doc{generation: 5, keys: two, states: []keystore.State{keystore.Next, keystore.Active}, history: []keystore.Event{
			{At: storetest.Time(time.Hour), By: "x", What: "promote key y", Forced: true}, {At: storetest.Time(2 * time.Hour), By: "x", What: "retire key y", Forced: true},
			{At: storetest.Time(3 * time.Hour), By: "x", What: "promote key y"},
		}})
		check("as many keys of each state as before", changed, swapped)
		check("the only forced promotion", forced, storetest.Time(time.Hour))
	})
}
