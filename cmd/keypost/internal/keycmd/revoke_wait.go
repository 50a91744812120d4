package keycmd

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/keystore/policy"
)

// lookAgain is how long --wait waits between two looks, each of which takes ten seconds.
const lookAgain = 5 * time.Second

// awaitGone looks until nothing that answers for an issuer publishes a key that is gone in s. It compares what is served with s
// and not with whatever the store holds by then: an older version that somebody put back knows nothing of the revocation.
func (o *revokeOptions) awaitGone(ctx context.Context, s keystore.KeySet, network fetch.Network) error {
	st, err := o.OpenToWrite(ctx)
	if err != nil {
		return err
	}
	uploads := len(s.Policy().Uploads()) > 0
	if uploads && o.Observations == "" {
		return cli.WithHint(errors.New("the key is revoked, and whether relying parties that hold an upload still have it is not known: nothing says where observations are"),
			"run this again with --observations URL, the same as of: %s", cli.SyncCommand(s.Name()))
	}
	if uploads && len(s.Keys()) == 0 {
		return fmt.Errorf("the key is revoked; key set %q publishes none now, and nobody takes an upload without one: disable or delete each provider that holds a copy (%s)", s.Name(), text.List(s.Policy().Uploads(), 3))
	}
	hinted := false
	var unknownCA atomic.Bool
	for said := ""; ; {
		var left []string
		behind := false // an origin is, or somebody who may be one
		for _, t := range observe.Targets(s) {
			t.Failed = func(_ string, err error) {
				if _, is := errors.AsType[x509.UnknownAuthorityError](err); is && !unknownCA.Swap(true) {
					o.Notice("hint: %s", observe.OwnCA)
				}
			}
			sight, err := verify.Compare(ctx, network, t, func(context.Context) (keystore.KeySet, error) { return s, nil })
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			left = append(left, unfinished(t, sight, err)...)
			behind = behind || originsBehind(sight)
		}
		left = append(left, o.uploaded(ctx, s)...)
		kept, undone := keep(ctx, st, s) // last, so that the end says what is so at the end
		s, left = kept, append(left, undone...)
		if len(left) == 0 {
			if len(s.Policy().Uploads()) > 0 { // it may have changed meanwhile
				o.Notice("each upload that the policy of %q names was read back without a key that is gone", s.Name())
			}
			if s.Policy().Reach != keystore.ReachCopies {
				o.Notice("no address or origin of %q publishes a key that is gone; anyone who has a copy trusts it as printed above, or as keypost verify says", s.Name())
			}
			return nil
		}
		if now := strings.Join(left, "; "); now != said {
			o.Notice("waiting: %s", now)
			said = now
		}
		if !hinted && behind && !unknownCA.Load() && time.Now().After(readBy(s)) {
			hinted = true
			accept := cli.Command{"issuer", "accept", string(s.Name()), "--admin", "URL", "--why", "REASON"}
			o.Notice("what is served is not what is stored, though every keypostd has had the time to read it: after an older version was restored it refuses the stored one. This says so: %s; and this settles it: %s",
				cli.Command{"issuer", "list", "--admin", "URL"}, accept)
		}
		if err := cli.Pause(ctx, lookAgain); err != nil {
			return err
		}
	}
}

// uploaded returns what the copies that the policy names leave open: each has to be read back after the last key went, without any
// that is gone.
func (o *revokeOptions) uploaded(ctx context.Context, s keystore.KeySet) (left []string) {
	records, err := observe.Records(ctx, o.Factory, s)
	if hinted, is := errors.AsType[*cli.HintedError](err); is { // it waits until that is mended
		return []string{fmt.Sprintf("%v (%s)", err, hinted.Hint(o.Factory))}
	}
	if err != nil {
		return []string{err.Error()}
	}
	for _, c := range observation.UploadsOf(s, records) {
		gone := slices.ContainsFunc(c.Extra, func(k observation.Key) bool {
			return slices.ContainsFunc(s.Gone(), func(g keystore.Gone) bool {
				return g.Fingerprint == k.Fingerprint || g.ID == k.ID
			})
		})
		why := ""
		switch name := text.OneLine(c.Upload, 300); {
		case gone, c.State == observation.UploadBehind: // one whose keys nobody can read has none of them
			why = c.Problem()
		case c.ReadAt.Before(lastGone(s)):
			why = fmt.Sprintf("the upload %s was not read back since the key was revoked", name)
		default:
			continue
		}
		if party.KnownUpload(c.Upload) {
			why += " (" + o.Line(cli.SyncCommand(s.Name())) + ")"
		}
		left = append(left, why)
	}
	return left
}

func lastGone(s keystore.KeySet) (at time.Time) {
	for _, g := range s.Gone() {
		if g.At.After(at) {
			at = g.At
		}
	}
	return at
}

// originsBehind reports whether an origin was seen with a key that is gone. Where none is named, any address may be one.
func originsBehind(s verify.Sight) bool {
	return slices.ContainsFunc(s.Findings, func(f finding.Finding) bool {
		return len(s.Look.Origins) == 0 || slices.ContainsFunc(f.At, func(at string) bool { return slices.Contains(s.Look.Origins, at) })
	})
}

// readBy returns until when every keypostd has had the time to read what was revoked.
func readBy(s keystore.KeySet) time.Time {
	if s.Dev() { // one server watches its directory
		return lastGone(s).Add(lookAgain)
	}
	return lastGone(s).Add(policy.Convergence)
}

// keep returns the key set to compare with: the stored one if it knows of everything that is gone in s. If it does not, an older version
// was put back, by a restored backup or by something that applies old manifests. Servers that run refuse that; one that starts without its
// copy serves the key. undone says so.
func keep(ctx context.Context, st *keystore.Store, s keystore.KeySet) (kept keystore.KeySet, undone []string) {
	now, err := catalog.Load(ctx, st, s.Name())
	switch {
	case err != nil:
		return s, []string{err.Error()}
	case len(catalog.LostLines(now, s.Gone())) == 0:
		return now, nil
	}
	return s, []string{fmt.Sprintf("something put generation %d of the key set back, which does not have the revocation: stop what does it (a sync of old manifests, a restore), "+
		"and then revoke the key again", now.Generation())}
}

// unfinished returns what a look at an issuer URL leaves open: keys that are gone and still there, and what was not seen.
func unfinished(t verify.Target, s verify.Sight, err error) (left []string) {
	if err != nil {
		return []string{err.Error()}
	}
	for _, f := range s.Findings {
		if f.Severity == finding.Fail || f.Code == "key-still-there" {
			left = append(left, f.Message())
		}
	}
	if s.NotCompared != "" {
		left = append(left, fmt.Sprintf("%s: %s", t.URL, s.NotCompared))
	}
	return append(left, s.Look.Gaps...)
}
