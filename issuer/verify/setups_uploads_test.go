package verify

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

const anUpload = "gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/prod-a"

// holds lets the policy name a copy that had these keys when it was read back; none: nothing was.
func (w *world) holds(t *testing.T, keys ...keystore.VerificationKey) {
	t.Helper()
	withPolicy(func(p *keystore.Policy) { p.RelyingParties = []string{anUpload} })(t, w)
	w.options.Uploads = func(context.Context, keystore.KeySet) ([]observation.Record, error) {
		if len(keys) == 0 {
			return nil, nil
		}
		look := observation.ReadBack(time.Now(), observation.Upload{By: "cron"}, keys)
		return []observation.Record{observation.Record{KeySet: "prod-a", Issuer: anUpload}.With(look)}, nil
	}
}

// recorded changes what is recorded of the copy.
func (w *world) recorded(t *testing.T, step func(*observation.Record)) {
	t.Helper()
	before := w.options.Uploads
	w.options.Uploads = func(ctx context.Context, s keystore.KeySet) ([]observation.Record, error) {
		records, err := before(ctx, s)
		if err == nil {
			step(&records[0])
		}
		return records, err
	}
}

// synced lets the copy hold what is published, as keypost sync-keys does.
func synced(t *testing.T, w *world) {
	t.Helper()
	w.heal(t)
	var keys []keystore.VerificationKey
	for _, k := range w.stored.Keys() {
		keys = append(keys, k.VerificationKey)
	}
	w.holds(t, keys...)
}

// unreadAgain lets the stored key set be read once more, and then not.
func unreadAgain(w *world) {
	read, times := w.options.Stored, 0
	w.options.Stored = func(ctx context.Context) (keystore.KeySet, error) {
		if times++; times > 1 {
			return keystore.KeySet{}, errors.New("access denied")
		}
		return read(ctx)
	}
}

// uploadSetups are about what a relying party holds that fetches nothing.
func uploadSetups() []setup {
	return []setup{
		{"an upload that does not have the key that signs", "upload-behind", "", func(t *testing.T, w *world) { w.holds(t, public(t, newECKey(t))) }, synced},
		{"an upload that does not have the next key", "upload-behind", finding.Warn, func(t *testing.T, w *world) {
			w.storeKey(t, stale, newECKey(t))
			w.heal(t)
			w.holds(t, public(t, w.signer))
		}, synced},
		{"an upload with a key of somebody else", "upload-behind", "", func(t *testing.T, w *world) { w.holds(t, public(t, w.signer), public(t, newECKey(t))) }, synced},
		{"an upload with a key that was revoked", "upload-behind", "", func(t *testing.T, w *world) {
			k := newECKey(t)
			w.storeKey(t, time.Hour, k)
			w.revoke(t, fresh, public(t, k).ID())
			w.heal(t)
			w.holds(t, public(t, w.signer), public(t, k))
		}, synced},
		{"an upload of a later version of the key set", "upload-behind", "", func(t *testing.T, w *world) {
			w.holds(t, public(t, newECKey(t)))
			w.recorded(t, func(r *observation.Record) {
				k := public(t, w.signer)
				r.Newest = &observation.Version{Generation: 1 << 40, Gone: []observation.Key{{ID: k.ID(), Fingerprint: k.Fingerprint()}}}
			})
		}, synced},
		{"an upload that nobody has read back", "upload-unread", "", func(t *testing.T, w *world) { w.holds(t) }, synced},
		{"an upload that could not be read back the last time", "upload-unread", finding.Warn, func(t *testing.T, w *world) {
			synced(t, w)
			w.recorded(t, func(r *observation.Record) {
				r.Failed = &observation.Failed{At: time.Now(), Why: "there is no such provider"}
			})
		}, synced},
		{"nobody says where observations are", "upload-unread", finding.Warn, func(t *testing.T, w *world) {
			w.holds(t, public(t, w.signer))
			w.options.Uploads = nil
		}, synced},
		{"a token, and stored keys that cannot be read any more, where nobody reads the documents", "token-unchecked", "", func(t *testing.T, w *world) {
			synced(t, w)
			withPolicy(func(p *keystore.Policy) { p.Reach = keystore.ReachCopies })(t, w)
			anew(t, w)
			unreadAgain(w)
		}, func(t *testing.T, w *world) { w.options.Stored = w.readStored; anew(t, w) }},
	}
}

// TestNobodyReads: of an issuer whose documents nobody reads only the copies are judged, and no address is looked up.
func TestNobodyReads(t *testing.T) {
	w := newWorld(t)
	w.holds(t, public(t, w.signer))
	withPolicy(func(p *keystore.Policy) { p.Reach = keystore.ReachCopies })(t, w)
	w.options.Lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		t.Errorf("%s is looked up", host)
		return nil, errors.New("no such host")
	}
	for _, f := range w.visit(t) {
		if f.Severity != finding.OK {
			t.Errorf("found%s", lines([]finding.Finding{f}))
		}
	}
	if !strings.Contains(lines(w.found), "was read back at") {
		t.Errorf("found%s", lines(w.found))
	}
	w.holds(t, public(t, newECKey(t)))
	withPolicy(func(p *keystore.Policy) { p.Reach = keystore.ReachCopies })(t, w)
	if found := w.visit(t); !finding.Failed(found) {
		t.Errorf("a copy that is behind passes:%s", lines(found))
	}
}

// TestTokenWhereNobodyReads: a token is checked against the stored keys, or said not to be checked.
func TestTokenWhereNobodyReads(t *testing.T) {
	stranger := func(t *testing.T, w *world) {
		w.signer = newECKey(t)
		w.kid = string(public(t, w.signer).ID())
		w.options.Token = w.token(t)
	}
	for _, tt := range []struct {
		name  string
		build func(*testing.T, *world)
		want  string // empty: the token is good
	}{
		{"its own token", anew, ""},
		{"a token of an unknown key", stranger, "token-kid-unknown"},
		{"another issuer URL than the key set's", func(t *testing.T, w *world) {
			anew(t, w)
			w.options.URL = "https://oidc.example.com/prod-b"
		}, "token-unchecked"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			synced(t, w)
			withPolicy(func(p *keystore.Policy) { p.Reach = keystore.ReachCopies })(t, w)
			tt.build(t, w)
			found := Examine(t.Context(), w.options)
			has := func(code string) bool {
				return slices.ContainsFunc(found.Findings, func(f finding.Finding) bool { return f.Code == code && f.Severity == finding.Fail })
			}
			if tt.want != "" && !has(tt.want) {
				t.Errorf("want %s in%s", tt.want, lines(found.Findings))
			}
			if tt.want == "" && (finding.Failed(found.Findings) || !strings.Contains(lines(found.Findings), "signature verifies")) {
				t.Errorf("found%s", lines(found.Findings))
			}
			if unread := tt.want == "token-unchecked"; (found.Keys == nil) != unread {
				t.Errorf("keys %v", found.Keys)
			}
		})
	}
}
