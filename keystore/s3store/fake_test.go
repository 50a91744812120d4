package s3store

import (
	"crypto/md5"
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// fake is an S3 server that can be as odd as no real one that can be had: ETags as under SSE-KMS, tiny pages, answers
// that a test writes itself.
type fake struct {
	pageSize int
	etag     func(data []byte) string
	careless bool                                              // ignores conditions
	answer   func(w http.ResponseWriter, r *http.Request) bool // takes a request over; called under no lock

	mu      sync.Mutex
	objects map[string]fakeObject
	calls   []*http.Request
}

type fakeObject struct {
	data []byte
	etag string
	meta http.Header
}

func newFake(t testing.TB) (*fake, string) {
	f := &fake{pageSize: 1000, etag: md5Of, objects: map[string]fakeObject{}}
	sv := httptest.NewServer(f)
	t.Cleanup(sv.Close)
	return f, sv.URL
}

func md5Of(data []byte) string { return fmt.Sprintf("%x", md5.Sum(data)) }

// unlikeMD5 is what ETags are under SSE-KMS: another one after every write.
func unlikeMD5([]byte) string { return rand.Text() }

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if f.answer != nil && f.answer(w, r) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, r)
	inBucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case inBucket != bucket:
		refuse(w, http.StatusNotFound, "NoSuchBucket")
	case key == "":
		f.list(w, r.URL.Query())
	case r.Method == http.MethodPut:
		f.put(w, r, key, body)
	default:
		f.get(w, key)
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants it</Message></Error>", code)
}

func (f *fake) put(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	is, exists := f.objects[key]
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case f.careless:
	case match != "" && !exists:
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	case match != "" && match != `"`+is.etag+`"`, none == "*" && exists:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	o := fakeObject{body, f.etag(body), r.Header}
	f.objects[key] = o
	w.Header().Set("ETag", `"`+o.etag+`"`)
}

func (f *fake) get(w http.ResponseWriter, key string) {
	o, ok := f.objects[key]
	if !ok {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	w.Header().Set("ETag", `"`+o.etag+`"`)
	w.Header().Set("Content-Length", fmt.Sprint(len(o.data)))
	_, _ = w.Write(o.data)
}

type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
	KeyCount              int
	EncodingType          string `xml:",omitempty"`
	Contents              []listed
	CommonPrefixes        []struct{ Prefix string }
}

type listed struct{ Key, ETag string }

func (f *fake) list(w http.ResponseWriter, q url.Values) {
	var l listing
	l.EncodingType = q.Get("encoding-type")
	for _, key := range slices.Sorted(maps.Keys(f.objects)) {
		rest, under := strings.CutPrefix(key, q.Get("prefix"))
		if !under || key <= q.Get("continuation-token") || q.Has("delimiter") && strings.Contains(rest, q.Get("delimiter")) {
			continue
		}
		if len(l.Contents) == f.pageSize {
			l.IsTruncated = true
			break
		}
		l.NextContinuationToken = key
		entry := listed{key, `"` + f.objects[key].etag + `"`}
		if l.EncodingType != "" {
			entry.Key = url.QueryEscape(key)
		}
		l.Contents = append(l.Contents, entry)
	}
	if !l.IsTruncated {
		l.NextContinuationToken = ""
	}
	l.KeyCount = len(l.Contents)
	_ = xml.NewEncoder(w).Encode(l)
}

func (f *fake) set(key string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.objects[key] = fakeObject{data: data, etag: f.etag(data)}
}

// The same suite as on a real server, with ETags that are not hashes of the content, and listings of many pages.
func TestConformanceWithOddETagsAndSmallPages(t *testing.T) {
	storetest.Run(t, func(t *testing.T) keystore.Backend {
		f, url := newFake(t)
		f.etag, f.pageSize = unlikeMD5, 3
		return open(t, url, newPrefix())
	})
}

// A bucket that never answers.
func TestHanging(t *testing.T) {
	storetest.RunHanging(t, func(t *testing.T) keystore.Backend {
		f, url := newFake(t)
		f.answer = func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
		return open(t, url, newPrefix())
	})
}
