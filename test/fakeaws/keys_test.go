package fakeaws

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/fakecloud/cluster"
)

func TestOnlyAChainInOrderIsOne(t *testing.T) {
	t.Parallel()
	ca, other := authority.New(t), authority.New(t)
	leaf := ca.Leaf(t, "oidc.example.com").Cert
	alone := []string{thumbprintOf(leaf)}
	now := cluster.NewClock().Now()
	for name, c := range map[string]struct {
		chain       []*x509.Certificate
		host        string
		thumbprints []string
		now         time.Time
		good        bool
	}{
		"leaf and CA":                   {[]*x509.Certificate{leaf, ca.Cert}, "oidc.example.com", nil, now, true},
		"leaf alone":                    {[]*x509.Certificate{leaf}, "oidc.example.com", nil, now, true},
		"out of order":                  {[]*x509.Certificate{ca.Cert, leaf}, "oidc.example.com", nil, now, false},
		"a certificate twice":           {[]*x509.Certificate{leaf, leaf, ca.Cert}, "oidc.example.com", nil, now, false},
		"a certificate of another CA":   {[]*x509.Certificate{leaf, other.Cert}, "oidc.example.com", nil, now, false},
		"another host":                  {[]*x509.Certificate{leaf, ca.Cert}, "example.com", nil, now, false},
		"another host, with thumbprint": {[]*x509.Certificate{leaf}, "example.com", alone, now, false},
		"run out":                       {[]*x509.Certificate{leaf, ca.Cert}, "oidc.example.com", nil, now.AddDate(20, 0, 0), false},
	} {
		k := newKeyCache(Options{Roots: ca.Pool(), Now: func() time.Time { return c.now }})
		if err := k.verify(tls.ConnectionState{PeerCertificates: c.chain}, c.host, c.thumbprints); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	private := newKeyCache(Options{Now: func() time.Time { return now }})
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	if err := private.verify(state, "oidc.example.com", alone); err != nil {
		t.Error("the thumbprint of the leaf itself:", err)
	}
	if err := private.verify(state, "oidc.example.com", []string{thumbprintOf(other.Cert)}); !errors.Is(err, errThumbprint) {
		t.Error(err)
	}
}

func TestAnIssuerThatIsSlowHasNoKeys(t *testing.T) {
	t.Parallel()
	p := stage(t, nil)
	p.keys.limit = time.Millisecond
	p.issuer.Change(func(*cluster.Issuer) { // meanwhile it does not answer
		refused(t, p.assume(t.Context(), p.key.Sign(t, cluster.Workload(p.clock.Now()))), badTokens, noKey)
	})
}

func TestWithoutAWayToIssuersNoTokenIsAccepted(t *testing.T) {
	t.Parallel()
	p := stage(t, func(o *Options) { o.Dial = nil })
	if n := len(p.State().Providers[0].Thumbprints); n != 1 {
		t.Errorf("%d thumbprints", n)
	}
	refused(t, p.assume(t.Context(), p.key.Sign(t, cluster.Workload(p.clock.Now()))), badTokens, noKey)
}
