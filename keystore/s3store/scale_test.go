package s3store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// fill stores n key sets with two RSA keys each.
func fill(t testing.TB, st *Backend, n int) {
	t.Helper()
	text := storetest.Text(t, storetest.KeySet(t, "template", storetest.SyntheticRSA(t, 1), storetest.SyntheticRSA(t, 2)))
	var g errgroup.Group
	g.SetLimit(limits().Connections)
	for i := range n {
		name := fmt.Sprintf("prod-%05d", i)
		g.Go(func() error {
			_, err := st.put(t.Context(), st.key(keystore.Name(name)), "", []byte(strings.ReplaceAll(text, "template", name)))
			return err
		})
	}
	must(t, g.Wait())
}

// BenchmarkScale prints, for 1, 100 and 10,000 key sets on a server on this machine: the requests and the time of a
// listing, a publisher's start, one write, the refresh that serves it, and the monthly cost of polling for it.
func BenchmarkScale(b *testing.B) {
	sv := gateway(b)
	for _, n := range []int{1, 100, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p, url := newProxy(b, sv.url)
			fill(b, open(b, sv.url, Options{Prefix: fmt.Sprintf("n%d", n)}), n)
			counted := reopen(b, url, Options{Prefix: fmt.Sprintf("n%d", n)})
			_, err := counted.List(b.Context())
			must(b, err)
			requests := len(p.requests())
			st := reopen(b, sv.url, Options{Prefix: fmt.Sprintf("n%d", n)})
			pattern, err := issuer.ParsePattern("https://oidc.example.com/{name}", false)
			must(b, err)
			publisher := issuer.NewPublisher(issuer.Config{Source: keystore.NewStore(st), Patterns: []issuer.Pattern{pattern}, Log: zap.NewNop()})
			began := time.Now()
			must(b, publisher.Refresh(b.Context()))
			start := time.Since(began)
			must(b, publisher.Ready())
			_, err = keystore.Update(b.Context(), keystore.NewStore(st), "prod-00000", storetest.Mark("proof")) // with the proof, which no later one needs
			must(b, err)
			for b.Loop() {
				report(b, "ms/list", func() { list(b, st) })
				report(b, "ms/write", func() {
					_, err := keystore.Update(b.Context(), keystore.NewStore(st), "prod-00000", storetest.Mark("x"))
					must(b, err)
				})
				report(b, "ms/served", func() { must(b, publisher.Refresh(b.Context())) })
			}
			b.ReportMetric(float64(start.Milliseconds()), "ms/start")
			b.ReportMetric(float64(requests), "requests/list")
		})
	}
}

// report measures what f takes; of several measurements the last one is reported.
func report(b *testing.B, unit string, f func()) {
	began := time.Now()
	f()
	b.ReportMetric(float64(time.Since(began).Microseconds())/1000, unit)
}
