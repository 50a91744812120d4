package verify

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/caching"
	"github.com/keypost/keypost/issuer/verify/difference"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
)

// ErrNotStored means that a store has no key set with the issuer URL: there is nothing to compare with.
var ErrNotStored = errors.New("the store has no key set with this issuer URL")

// notCompared reports that there was nothing to compare.
func notCompared(r *finding.Report, o Options) {
	if o.Stored == nil {
		r.Warn("store-none", "no store was given, so nothing says whether the published keys are yours")
		return
	}
	r.Fail("not-compared", "nothing could be compared with the store: no JWKS could be read at %s", o.URL)
}

// readStore returns nil, with a finding, when there is nothing to compare with.
func (v *visitor) readStore(ctx context.Context) *keystore.KeySet {
	if v.o.Stored == nil {
		notCompared(&v.Report, v.o)
		return nil
	}
	set, err := v.o.Stored(ctx)
	v.known = set
	switch {
	case errors.Is(err, ErrNotStored):
		v.Warn("store-unknown", "nothing was compared: %v", err)
	case err != nil:
		v.Fail("not-compared", "nothing was compared with the store: %v", err)
	case set.Withdrawn():
		v.Fail("not-compared", "nothing was compared: key set %q was withdrawn at %s", set.Name(), stamp(set.WithdrawnAt()))
	case !slices.ContainsFunc(set.Issuers(), func(u keystore.IssuerURL) bool { return u.String() == v.o.URL }):
		v.Fail("not-compared", "nothing was compared: key set %q does not have the issuer URL %s", set.Name(), v.o.URL)
	default:
		return &set
	}
	return nil
}

// checkStored compares what one address publishes with what the store says should be, key by key and by their
// material: a kid is a name that anybody can give to a key.
func (v *visit) checkStored(documents []jwksDocument) {
	if v.stored == nil || v.shut {
		return // it has been reported
	}
	if len(documents) == 0 {
		notCompared(&v.Report, v.o)
		return
	}
	before := len(v.Findings)
	for _, d := range documents {
		v.compare(d)
	}
	if len(v.Findings) == before {
		v.OK("stored-keys", "the published keys are those of key set %q, compared by their material", v.stored.Name())
	}
}

func (v *visit) compare(d jwksDocument) {
	if d.broken {
		v.Fail("not-compared", "%s could not be read, so it was not compared with key set %q", d.url, v.stored.Name())
		return
	}
	if d.unread > 0 {
		v.Fail("keys-unread", "%s has keys (%d) that cannot be read, and so not compared with key set %q", d.url, d.unread, v.stored.Name())
	}
	shows := slices.ContainsFunc(v.look.replies(), func(a response) bool { return caching.Shared(a.Header) != "" })
	v.Add(difference.From{Set: *v.stored, Now: v.o.Now, Allowed: v.allowed(), Cached: shows, Direct: v.o.Connect != ""}.Of(d.url, d.keys)...)
}

// allowed returns for how long the answers of this look allow caches to hold copies: an edge may have added to what the policy
// declares. Nobody may silence a finding for longer than a policy could.
func (v *visit) allowed() keystore.Cache {
	var c keystore.Cache
	for _, a := range v.look.replies() {
		c = c.Longest(a.allows())
	}
	return keystore.Cache{MaxAge: min(c.MaxAge, mostSilent), StaleWhileRevalidate: min(c.StaleWhileRevalidate, mostSilent), StaleIfError: min(c.StaleIfError, mostSilent)}
}

// mostSilent is the longest stale time that a policy may declare (keystore.Policy.Check); its maxAge may be a day at most, beyond
// which only an edge goes.
const mostSilent = 7 * 24 * time.Hour

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
