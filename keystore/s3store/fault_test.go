package s3store

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// troubled opens a store on a real server through a proxy, with key set prod-a in it and the proof behind it.
func troubled(t *testing.T, sv *server) (*Backend, *proxy) {
	t.Helper()
	p, url := newProxy(t, sv.url)
	st := open(t, url, newPrefix())
	create(t, st, "prod-a")
	return impatient(st), p
}

// impatient makes a store give up on a request after a moment, and try again without one.
func impatient(st *Backend) *Backend {
	st.s3 = s3.New(st.s3.Options(), func(o *s3.Options) {
		o.HTTPClient = awshttp.NewBuildableClient().WithTimeout(300 * time.Millisecond)
		o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts, r.MaxBackoff, r.RateLimiter = attempts, time.Millisecond, ratelimit.None
		})
	})
	return st
}

func TestReadingInTrouble(t *testing.T) {
	sv := gateway(t)
	for _, c := range []struct {
		name  string
		what  func(*http.Request, int) trouble
		fails bool
	}{
		{"a throttle that passes", atFirst(busy, busy), false},
		{"a connection that breaks once", atFirst(cutOff), false},
		{"an answer that is lost", atFirst(lost), false},
		{"one that hangs once", atFirst(hang), false},
		{"a throttle that stays", always(busy), true},
		{"no connection", always(cutOff), true},
		{"nothing but silence", always(hang), true},
		{"answers that break off", always(half), true},
		{"answers that are cut to measure", always(shorter), true},
		{"a permission that is lost", always(denied), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, p := troubled(t, sv)
			p.trouble(c.what)
			all, err := st.List(t.Context())
			if (err != nil) != c.fails || c.fails && all != nil || !c.fails && len(all) != 1 {
				t.Errorf("List = %v, %v; want an error: %v", all, err, c.fails)
			}
			p.trouble(c.what)
			_, rev, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
			_, broken := errors.AsType[*keystore.BrokenError](err)
			if (err != nil) != c.fails || broken || errors.Is(err, keystore.ErrNotFound) || c.fails == (rev != "") {
				t.Errorf("Load = %q, %v; want trouble of the store: %v", rev, err, c.fails)
			}
			p.trouble(nil)
			if all := list(t, st); len(all) != 1 {
				t.Errorf("afterwards List = %v", all)
			}
		})
	}
}

// As Open makes it: the others above try again without a pause.
func TestAThrottleThatPassesIsWaitedOut(t *testing.T) {
	p, url := newProxy(t, gateway(t).url)
	st := open(t, url, newPrefix())
	create(t, st, "prod-a")
	p.trouble(atFirst(busy, busy))
	began := time.Now()
	if all := list(t, st); len(all) != 1 {
		t.Errorf("List = %v", all)
	}
	t.Logf("two throttled requests cost %v", time.Since(began))
}

// Whatever happens on the way, Update reports what happened, and applies the change at most once.
func TestWritingInTrouble(t *testing.T) {
	sv := gateway(t)
	for _, c := range []struct {
		name  string
		what  func(*http.Request, int) trouble
		want  error // nil and fails: any that says nothing about what happened
		fails bool
		marks []string // what is stored afterwards
	}{
		{"a throttle that passes", atFirst(busy), nil, false, []string{"ours"}},
		{"a connection that breaks before", atFirst(cutOff), nil, false, []string{"ours"}},
		{"an answer that is lost", atFirst(lost), nil, false, []string{"ours"}},
		{"two answers that are lost", atFirst(lost, lost), nil, false, []string{"ours"}},
		{"an answer that breaks off", atFirst(half), nil, false, []string{"ours"}},
		{"every answer is lost", always(lost), nil, false, []string{"ours"}},
		{"every request is lost", always(cutOff), nil, true, nil},
		{"a throttle that stays", always(busy), nil, true, nil},
		{"the permission is lost", always(denied), keystore.ErrReadOnly, true, nil},
		{"the permission is lost after the write", atFirst(lost, denied), nil, false, []string{"ours"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, p := troubled(t, sv)
			p.trouble(writes(c.what))
			_, err := keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("ours"))
			if (err != nil) != c.fails || !errors.Is(err, c.want) && c.want != nil || errors.Is(err, keystore.ErrConflict) {
				t.Errorf("Update = %v, want an error: %v (%v)", err, c.fails, c.want)
			}
			p.trouble(nil)
			if s, _, err := keystore.NewStore(st).Load(t.Context(), "prod-a"); err != nil || !slices.Equal(storetest.Marks(s), c.marks) {
				t.Errorf("stored are the marks %v, %v; want %v", storetest.Marks(s), err, c.marks)
			}
		})
	}
}

func TestAMissingBucketIsTrouble(t *testing.T) {
	sv := emptyGateway(t)
	st := open(t, sv.url, newPrefix())
	_, err := st.List(t.Context())
	wantError(t, err, nil, "the bucket keysets does not exist")
	_, _, err = keystore.NewStore(st).Load(t.Context(), "prod-a")
	wantError(t, err, nil, "the bucket keysets does not exist")
	if errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Load = %v: a missing bucket counts as a missing key set", err)
	}
	err = keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, "prod-a"))
	wantError(t, err, nil, "the bucket keysets does not exist")
	must(t, os.Mkdir(filepath.Join(sv.dir, bucket), 0o755))
	create(t, st, "prod-a")
}
