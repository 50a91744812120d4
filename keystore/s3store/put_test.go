package s3store

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// requests returns what was sent for a key, as METHOD and condition.
func (f *fake) requests(key string) (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.calls {
		if strings.HasSuffix(r.URL.Path, "/"+key) {
			all = append(all, strings.TrimSpace(r.Method+" "+r.Header.Get("If-Match")+r.Header.Get("If-None-Match")))
		}
	}
	return all
}

func TestAnObjectSaysWhatItIs(t *testing.T) {
	f, url := newFake(t)
	create(t, open(t, url, Options{Prefix: "plain"}), "prod-a")
	create(t, open(t, url, Options{Prefix: "owned", Account: "123456789012"}), "prod-a")
	for key, want := range map[string]map[string]string{
		"plain/prod-a.yaml": {
			"Content-Type": "application/yaml", "Cache-Control": "no-store", "X-Amz-Acl": "", "X-Amz-Server-Side-Encryption": "",
			"X-Amz-Expected-Bucket-Owner": "", "X-Amz-Trailer": "", "Content-Encoding": "",
		},
		"owned/prod-a.yaml": {"X-Amz-Expected-Bucket-Owner": "123456789012"},
	} {
		for name, value := range want {
			if got := f.objects[key].meta.Get(name); got != value {
				t.Errorf("%s was written with %s: %q, want %q", key, name, got, value)
			}
		}
		if agent := f.objects[key].meta.Get("User-Agent"); !strings.Contains(agent, "keypost") {
			t.Errorf("the user agent is %q", agent)
		}
	}
}

func TestEveryCallNamesTheBucketsOwner(t *testing.T) {
	f, url := newFake(t)
	st := open(t, url, Options{Account: "123456789012"})
	create(t, st, "prod-a")
	list(t, st)
	_, _, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
	must(t, err)
	for _, r := range f.calls {
		if r.Header.Get("X-Amz-Expected-Bucket-Owner") != "123456789012" {
			t.Errorf("%s %s does not name the owner", r.Method, r.URL)
		}
	}
}

func TestTheProofIsMadeOnceBeforeTheFirstWrite(t *testing.T) {
	f, url := newFake(t)
	st := open(t, url, Options{})
	create(t, st, "prod-a")
	create(t, st, "prod-b")
	want := "PUT *, PUT *, PUT \"00000000000000000000000000000000\""
	if got := strings.Join(f.requests(probe), ", "); got != want {
		t.Errorf("the proof is %s, want %s", got, want)
	}
	create(t, open(t, url, Options{}), "prod-c") // the probe is there by now, and its first refusal is proof enough
	if got := len(f.requests(probe)); got != 5 {
		t.Errorf("%d requests for the probe, want 5", got)
	}
	if all := list(t, st); len(all) != 3 {
		t.Errorf("List = %v, want no probe", all)
	}
}

func TestAStoreThatIgnoresConditionsIsRefused(t *testing.T) {
	for name, prepare := range map[string]func(f *fake){
		"all of them": func(f *fake) { f.careless = true },
		"If-Match only": func(f *fake) {
			f.answer = func(_ http.ResponseWriter, r *http.Request) bool {
				r.Header.Del("If-Match")
				return false
			}
		},
		"If-None-Match only": func(f *fake) {
			f.answer = func(_ http.ResponseWriter, r *http.Request) bool {
				r.Header.Del("If-None-Match")
				return false
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, url := newFake(t)
			prepare(f)
			st := open(t, url, Options{Prefix: "p"})
			for range 2 { // it is not taken for proven after the first attempt
				err := keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, "prod-a"))
				wantError(t, err, errNoConditions, "s3://keysets/p/: the store ignores conditions")
			}
			if _, written := f.objects["p/prod-a.yaml"]; written {
				t.Error("the key set was written all the same")
			}
		})
	}
}

func TestAStoreWithoutConditionsIsRefused(t *testing.T) {
	f, url := newFake(t)
	f.answer = func(w http.ResponseWriter, r *http.Request) bool {
		refuse(w, http.StatusNotImplemented, "NotImplemented")
		return true
	}
	err := keystore.Create(t.Context(), keystore.NewStore(open(t, url, Options{})), storetest.KeySet(t, "prod-a"))
	wantError(t, err, nil, "does not know conditional writes")
}

func TestTroubleIsNoProof(t *testing.T) {
	f, url := newFake(t)
	st := open(t, url, Options{})
	f.answer = func(w http.ResponseWriter, r *http.Request) bool {
		refuse(w, http.StatusForbidden, "AccessDenied")
		return true
	}
	wantError(t, keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, "prod-a")), keystore.ErrReadOnly, "do not allow s3:PutObject")
	f.answer = nil
	create(t, st, "prod-a")
	if got := len(f.requests(probe)); got != 3 {
		t.Errorf("%d requests for the probe after the trouble, want 3", got)
	}
}

func TestWhatPutSays(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		code   string
		want   error // nil: none that a caller matches
		part   string
	}{
		{"the condition is not met", 412, "PreconditionFailed", keystore.ErrConflict, "s3://keysets/prod-a.yaml"},
		{"two writers met", 409, "ConditionalRequestConflict", keystore.ErrConflict, ""},
		{"the object is gone", 404, "NoSuchKey", keystore.ErrConflict, ""},
		{"the bucket is gone", 404, "NoSuchBucket", nil, "the bucket keysets does not exist"},
		{"no right to write", 403, "AccessDenied", keystore.ErrReadOnly, "do not allow s3:PutObject on s3://keysets/prod-a.yaml"},
		{"old credentials", 400, "ExpiredToken", nil, "the credentials are not good for s3:PutObject"},
		{"another region", 301, "PermanentRedirect", nil, "another region"},
		{"full", 507, "InsufficientStorage", nil, "InsufficientStorage"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, url := newFake(t)
			st := open(t, url, Options{})
			create(t, st, "prod-a")
			f.answer = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPut {
					return false
				}
				refuse(w, c.status, c.code)
				return true
			}
			_, rev, err := st.Get(t.Context(), "prod-a")
			must(t, err)
			_, err = st.Put(t.Context(), "prod-a", rev, []byte(storetest.Text(t, storetest.KeySet(t, "prod-a"))))
			wantError(t, err, c.want, c.part)
			if c.want == nil && (errors.Is(err, keystore.ErrConflict) || errors.Is(err, keystore.ErrReadOnly)) {
				t.Errorf("the error says that nothing was written, which is not known: %v", err)
			}
		})
	}
}

func TestNoSecretIsInAnError(t *testing.T) {
	f, url := newFake(t)
	st := open(t, url, Options{})
	f.answer = func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte("<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message><AWSAccessKeyId>" + rootKey +
			"</AWSAccessKeyId><StringToSign>" + rootPass + r.Header.Get("Authorization") + "</StringToSign></Error>"))
		return true
	}
	_, err := st.List(t.Context())
	wantError(t, err, nil, "the credentials are not good for s3:ListBucket on s3://keysets/")
	if strings.Contains(err.Error(), rootPass) || strings.Contains(err.Error(), rootKey) || strings.Contains(err.Error(), "Signature=") {
		t.Errorf("a credential shows: %v", err)
	}
}
