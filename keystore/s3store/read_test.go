package s3store

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

func TestListShowsKeySetsAndIgnoresTheRest(t *testing.T) {
	for _, prefix := range []string{"", "a/b"} {
		f, url := newFake(t)
		st := open(t, url, Options{Prefix: prefix})
		dir := st.o.dir()
		for _, key := range []string{
			"prod-a.yaml", // shown
			"Wrong_Name.yaml", "prod-f.yml", "", ".yaml", probe, ".hidden.yaml", "README.md", "prod-a.yaml.bak", "prod-b.json", "nested/prod-c.yaml", "a b+c%2F.txt",
		} {
			f.set(dir+key, []byte("x"))
		}
		f.set("other/prod-d.yaml", []byte("x"))
		f.set("a/bb/prod-e.yaml", []byte("x"))
		for _, ignored := range []string{"nothing", "delimiter", "encoding-type"} { // what the server does not know
			f.answer = func(_ http.ResponseWriter, r *http.Request) bool {
				q := r.URL.Query()
				q.Del(ignored)
				r.URL.RawQuery = q.Encode()
				return false
			}
			delete(f.objects, dir+"control\x01.txt") // which XML cannot hold, so that it needs the encoding
			if ignored != "encoding-type" {
				f.set(dir+"control\x01.txt", []byte("x"))
			}
			got := slices.Sorted(maps.Keys(list(t, st)))
			if want := []keystore.Name{"prod-a"}; !slices.Equal(got, want) {
				t.Errorf("with the prefix %q, ignoring %s, List has %q, want %q", prefix, ignored, got, want)
			}
		}
		_, _, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
		if _, broken := errors.AsType[*keystore.BrokenError](err); !broken {
			t.Errorf("Load(prod-a) = %v, want a BrokenError", err)
		}
	}
}

// Whatever a server or something on the way to it answers instead of a listing: it is never taken for a shorter one.
func TestListIsCompleteOrAnError(t *testing.T) {
	const (
		begin  = `<ListBucketResult><IsTruncated>`
		last   = begin + `false</IsTruncated>`
		more   = begin + `true</IsTruncated>`
		object = `<Contents><Key>prod-a.yaml</Key><ETag>"e"</ETag></Contents>`
		end    = `</ListBucketResult>`
	)
	for name, body := range map[string]string{
		"nothing":                    ``,
		"another document":           `<html>welcome to the hotel</html>`,
		"no word on the last page":   `<ListBucketResult>` + object + end,
		"half a document":            last + object,
		"fewer keys than announced":  last + `<KeyCount>2</KeyCount>` + object + end,
		"more, and not how to go on": more + object + end,
		"the same page for ever":     more + `<NextContinuationToken>t</NextContinuationToken>` + object + end,
		"two pages by turns":         more + `<NextContinuationToken>TURN</NextContinuationToken>` + object + end,
		"an object without ETag":     last + `<Contents><Key>prod-a.yaml</Key></Contents>` + end,
		"a weak ETag":                last + `<Contents><Key>prod-a.yaml</Key><ETag>W/"e"</ETag></Contents>` + end,
		"a key that is not encoded":  last + `<EncodingType>url</EncodingType><Contents><Key>%zz.yaml</Key><ETag>"e"</ETag></Contents>` + end,
	} {
		t.Run(name, func(t *testing.T) {
			f, url := newFake(t)
			f.answer = func(w http.ResponseWriter, r *http.Request) bool {
				turn := map[string]string{"": "one", "one": "two", "two": "one"}[r.URL.Query().Get("continuation-token")]
				_, _ = w.Write([]byte(strings.ReplaceAll(body, "TURN", turn)))
				return true
			}
			if all, err := open(t, url, Options{}).List(t.Context()); err == nil || all != nil {
				t.Errorf("List = %v, %v; want an error", all, err)
			}
		})
	}
}

func TestOnlyTheStoresOwnWordIsAbsence(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		absent bool
	}{
		{"the key is not there", 404, "<Error><Code>NoSuchKey</Code></Error>", true},
		{"the bucket is not there", 404, "<Error><Code>NoSuchBucket</Code></Error>", false},
		{"a proxy's page", 404, "<html>not found</html>", false},
		{"nothing", 404, "", false},
		{"gone", 410, "", false},
		{"archived", 403, "<Error><Code>InvalidObjectState</Code></Error>", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, url := newFake(t)
			f.answer = func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
				return true
			}
			_, rev, err := keystore.NewStore(open(t, url, Options{})).Load(t.Context(), "prod-a")
			if err == nil || rev != "" || errors.Is(err, keystore.ErrNotFound) != c.absent {
				t.Errorf("Load = %q, %v; want ErrNotFound: %v", rev, err, c.absent)
			}
		})
	}
}

// Where the policy lets nothing be listed but the prefix, S3 answers a GetObject of what does not exist with 403.
func TestLoadAsksTheListingWhenS3DoesNotTell(t *testing.T) {
	f, url := newFake(t)
	st := open(t, url, Options{Prefix: "p"})
	create(t, st, "prod-a")
	code := "AccessDenied"
	f.answer = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, ".yaml") {
			return false
		}
		refuse(w, http.StatusForbidden, code)
		return true
	}
	_, _, err := keystore.NewStore(st).Load(t.Context(), "prod-b")
	wantError(t, err, keystore.ErrNotFound, "s3://keysets/p/prod-b.yaml")
	_, _, err = keystore.NewStore(st).Load(t.Context(), "prod-a")
	wantError(t, err, nil, "the credentials do not allow s3:GetObject on s3://keysets/p/prod-a.yaml")
	if errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("what may not be read counts as absent: %v", err)
	}
	for _, code = range []string{"AccessDenied", "InvalidObjectState"} { // one who may write it had it archived
		if _, _, err = keystore.NewStore(st).Load(t.Context(), "prod-a"); !keystore.OfDocument(err) {
			t.Errorf("%s of one object counts as trouble with the store: %v", code, err)
		}
	}
}

func TestLoadRefusesWhatCannotBeAKeySet(t *testing.T) {
	f, url := newFake(t)
	st := open(t, url, Options{})
	f.set("large.yaml", make([]byte, keystore.MaxDocument+1))
	f.set("empty.yaml", nil)
	f.set("other.yaml", []byte(storetest.Text(t, storetest.KeySet(t, "prod-a"))))
	all := list(t, st)
	for n, part := range map[keystore.Name]string{"large": "has 1048577 bytes", "empty": "broken", "other": `metadata.name is "prod-a"`} {
		_, rev, err := keystore.NewStore(st).Load(t.Context(), n)
		if _, broken := errors.AsType[*keystore.BrokenError](err); !broken || rev != all[n] || !strings.Contains(err.Error(), part) {
			t.Errorf("Load(%s) = revision %q, %v; want %q, a BrokenError with %q", n, rev, err, all[n], part)
		}
	}
}

// A length that does not fit is the last defence where the store keeps no checksum.
func TestLoadNoticesAShortBody(t *testing.T) {
	f, url := newFake(t)
	st := open(t, url, Options{})
	text := storetest.Text(t, storetest.KeySet(t, "prod-a"))
	for name, respond := range map[string]func(w http.ResponseWriter){
		"cut":            func(w http.ResponseWriter) { w.Header().Set("Content-Length", fmt.Sprint(len(text))) },
		"without length": func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
	} {
		f.answer = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("ETag", `"e"`)
			respond(w)
			_, _ = w.Write([]byte(text[:len(text)-1]))
			return true
		}
		_, rev, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
		if _, broken := errors.AsType[*keystore.BrokenError](err); err == nil || broken || rev != "" {
			t.Errorf("%s: Load = %q, %v; want trouble of the store", name, rev, err)
		}
	}
}
