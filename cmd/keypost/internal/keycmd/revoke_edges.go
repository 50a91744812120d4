package keycmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/cloudfront"
)

// edges is a CloudFront distribution that is to forget the documents of a key set.
type edges struct {
	*cli.Factory
	distribution string // empty for none
	reference    string // of the invalidation that is to be made
	early        bool   // one was made although an origin may have been behind
	done         bool
}

// purge makes the invalidation when it is time, and returns when it is carried out. Sooner, an edge would fetch the old
// documents again: that is until every origin that the policy names serves the new ones, and where it names none until every
// keypostd has had the time to read them. Where an origin is behind for longer, or cannot be seen from here, it is made then, and
// again when all of them were seen. An error says what keeps it from being done.
func (e *edges) purge(ctx context.Context, s keystore.KeySet, behind bool) error {
	if e.distribution == "" || e.done {
		return nil
	}
	readBy := readBy(s)
	early := time.Now().Before(readBy)
	if len(s.Policy().Origins) == 0 {
		behind = early
	}
	switch {
	case behind && early:
		return fmt.Errorf("the invalidation of %s waits until every keypostd serves the new documents, which is at %s at the latest", e.distribution, cli.Stamp(readBy))
	case behind && e.early:
		return fmt.Errorf("the invalidation of %s is to be made again, when each origin was seen with the new documents", e.distribution)
	}
	client, err := cloudfront.Open(ctx)
	if err != nil {
		return err
	}
	if e.reference == "" {
		e.reference = fmt.Sprintf("keypost-%s-%d", s.Name(), time.Now().UnixNano())
	}
	paths := documentPaths(s)
	e.Notice("invalidating %s of %s", strings.Join(paths, " "), e.distribution)
	if err := client.Invalidate(ctx, e.distribution, e.reference, paths); err != nil {
		return err
	}
	e.reference, e.early, e.done = "", behind, !behind
	e.Notice("CloudFront says Completed: every edge of %s has forgotten the documents", e.distribution)
	return nil
}

// documentPaths returns where the documents of a key set are, with whatever query: an edge may keep a copy for each.
func documentPaths(s keystore.KeySet) (paths []string) {
	for _, u := range s.Issuers() {
		_, path, below := strings.Cut(strings.TrimPrefix(u.String(), "https://"), "/")
		if below {
			path = "/" + path
		}
		for _, document := range []string{issuer.DiscoveryPath, issuer.JWKSPath, issuer.JWKSAliasPath} {
			paths = append(paths, path+document+"*")
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths) // the same path on two hosts
}

func lastGone(s keystore.KeySet) (at time.Time) {
	for _, g := range s.Gone() {
		if g.At.After(at) {
			at = g.At
		}
	}
	return at
}

// originsBehind reports whether an origin was seen with a key that is gone, or not wholly. Where the policy names none, any
// address may be one.
func originsBehind(s keystore.KeySet, sight verify.Sight) bool {
	if len(s.Policy().Origins) == 0 {
		return len(sight.Findings)+len(sight.Look.Gaps) > 0
	}
	for _, f := range sight.Findings {
		if len(f.At) == 0 || slices.ContainsFunc(sight.Look.Origins, func(o string) bool { return slices.Contains(f.At, o) }) {
			return true
		}
	}
	return slices.ContainsFunc(sight.Look.Gaps, func(gap string) bool {
		return strings.HasPrefix(gap, "the origin ") || slices.ContainsFunc(sight.Look.Origins, func(o string) bool { return strings.HasPrefix(gap, "at "+o+": ") })
	})
}
