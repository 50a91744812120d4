// Package buckets is the little of Cloud Storage that ccoctl needs: buckets, their policies and small objects over the JSON
// API, and anybody's look at an object (https://cloud.google.com/storage/docs/json_api/v1). Who calls, and whether a policy lets
// the public look, is not asked.
package buckets

import (
	"encoding/json"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"sync"
)

// Buckets holds buckets. It is an http.Handler that may be called side by side.
type Buckets struct {
	mux *http.ServeMux

	mu    sync.Mutex
	held  map[string]*bucket
	count int
}

type bucket struct {
	attributes map[string]any
	policy     map[string]any
	objects    map[string][]byte
}

// New has no buckets.
func New() *Buckets {
	b := &Buckets{mux: http.NewServeMux(), held: map[string]*bucket{}}
	const one = "/storage/v1/b/{bucket}"
	b.mux.HandleFunc("POST /storage/v1/b", b.create)
	b.mux.HandleFunc("GET "+one, b.of(func(k *bucket, w http.ResponseWriter, _ *http.Request) { send(w, http.StatusOK, k.attributes) }))
	b.mux.HandleFunc("DELETE "+one, b.of(b.remove))
	b.mux.HandleFunc("GET "+one+"/iam", b.of(func(k *bucket, w http.ResponseWriter, _ *http.Request) { send(w, http.StatusOK, k.policy) }))
	b.mux.HandleFunc("PUT "+one+"/iam", b.of(b.setPolicy))
	b.mux.HandleFunc("GET "+one+"/o", b.of(list))
	b.mux.HandleFunc("POST /upload"+one+"/o", b.of(insert))
	b.mux.HandleFunc("DELETE "+one+"/o/{object}", b.of(object(func(k *bucket, w http.ResponseWriter, name string) {
		delete(k.objects, name)
		w.WriteHeader(http.StatusNoContent)
	})))
	b.mux.HandleFunc("GET /{bucket}/{object...}", b.of(object(func(k *bucket, w http.ResponseWriter, name string) {
		_, _ = w.Write(k.objects[name]) // a failure here is a client that is gone
	})))
	return b
}

func (b *Buckets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mux.ServeHTTP(w, r)
}

// Objects are all objects, "bucket/name" to content.
func (b *Buckets) Objects() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := map[string]string{}
	for name, k := range b.held {
		for key, content := range k.objects {
			m[name+"/"+key] = string(content)
		}
	}
	return m
}

func send(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a failure here is a client that is gone
}

func refuse(w http.ResponseWriter, status int, reason, message string) {
	send(w, status, map[string]any{"error": map[string]any{"code": status, "message": message,
		"errors": []map[string]string{{"message": message, "domain": "global", "reason": reason}}}})
}

// of finds the bucket that a path names.
func (b *Buckets) of(do func(*bucket, http.ResponseWriter, *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		k := b.held[r.PathValue("bucket")]
		if k == nil {
			refuse(w, http.StatusNotFound, "notFound", "The specified bucket does not exist.")
			return
		}
		do(k, w, r)
	}
}

// object finds the object that a path names.
func object(do func(*bucket, http.ResponseWriter, string)) func(*bucket, http.ResponseWriter, *http.Request) {
	return func(k *bucket, w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("object")
		if _, ok := k.objects[name]; !ok {
			refuse(w, http.StatusNotFound, "notFound", "No such object: "+r.PathValue("bucket")+"/"+name)
			return
		}
		do(k, w, name)
	}
}

func (b *Buckets) create(w http.ResponseWriter, r *http.Request) {
	attributes := map[string]any{}
	name := ""
	if json.NewDecoder(r.Body).Decode(&attributes) == nil {
		name, _ = attributes["name"].(string)
	}
	switch {
	case name == "":
		refuse(w, http.StatusBadRequest, "required", "Required parameter: name")
	case b.held[name] != nil:
		refuse(w, http.StatusConflict, "conflict", "Your previous request to create the named bucket succeeded and you already own it.")
	default:
		b.held[name] = &bucket{attributes: attributes, policy: map[string]any{"etag": "CAE=", "version": 1}, objects: map[string][]byte{}}
		send(w, http.StatusOK, attributes)
	}
}

func (b *Buckets) remove(k *bucket, w http.ResponseWriter, r *http.Request) {
	if len(k.objects) > 0 {
		refuse(w, http.StatusConflict, "conflict", "The bucket you tried to delete is not empty.")
		return
	}
	delete(b.held, r.PathValue("bucket"))
	w.WriteHeader(http.StatusNoContent)
}

func (b *Buckets) setPolicy(k *bucket, w http.ResponseWriter, r *http.Request) {
	policy := map[string]any{}
	if err := json.NewDecoder(r.Body).Decode(&policy); err != nil {
		refuse(w, http.StatusBadRequest, "parseError", err.Error())
		return
	}
	if etag, said := policy["etag"]; said && etag != k.policy["etag"] {
		refuse(w, http.StatusPreconditionFailed, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
		return
	}
	b.count++
	policy["etag"] = "CAE" + strconv.Itoa(b.count)
	k.policy = policy
	send(w, http.StatusOK, policy)
}

func list(k *bucket, w http.ResponseWriter, r *http.Request) {
	items := []any{}
	for _, name := range slices.Sorted(maps.Keys(k.objects)) {
		items = append(items, described(r, name))
	}
	send(w, http.StatusOK, map[string]any{"kind": "storage#objects", "items": items})
}

func described(r *http.Request, name string) map[string]any {
	return map[string]any{"kind": "storage#object", "bucket": r.PathValue("bucket"), "name": name, "generation": "1", "metageneration": "1"}
}

// insert takes the multipart form of an upload: a description, and the content.
func insert(k *bucket, w http.ResponseWriter, r *http.Request) {
	_, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || r.URL.Query().Get("uploadType") != "multipart" {
		refuse(w, http.StatusBadRequest, "invalid", "only multipart uploads are taken here")
		return
	}
	var about struct{ Name string }
	parts := multipart.NewReader(r.Body, parameters["boundary"])
	part, err := parts.NextPart()
	if err == nil {
		err = json.NewDecoder(part).Decode(&about)
	}
	if err == nil {
		part, err = parts.NextPart()
	}
	var content []byte
	if err == nil {
		content, err = io.ReadAll(part)
	}
	if err != nil || about.Name == "" {
		refuse(w, http.StatusBadRequest, "invalid", "The upload has no description, or no content.")
		return
	}
	k.objects[about.Name] = content
	send(w, http.StatusOK, described(r, about.Name))
}
