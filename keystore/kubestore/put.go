package kubestore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/keystore"
)

// Put sends the whole object with the resourceVersion that was read: the API server lets one of several such writers
// through, and holds the change against the rules of the custom resource definition. The write is durable in etcd before
// it answers.
func (s *Backend) Put(ctx context.Context, n keystore.Name, old keystore.Revision, doc []byte) (keystore.Revision, error) {
	next, err := parseDocument(n, doc)
	if err != nil {
		return "", fmt.Errorf("encode %s %q: %w", s.one, n, err)
	}
	stored, err := s.unchanged(ctx, n, old)
	if err != nil {
		return "", err
	}
	body, err := stored.with(next)
	if err != nil {
		return "", fmt.Errorf("encode %s %q: %w", s.one, n, err)
	}
	written, err := s.write(ctx, n, old, body)
	if kubeapi.IsStatus(err, http.StatusConflict) {
		return "", fmt.Errorf("%w: %q has another revision in %s", keystore.ErrConflict, n, s.place)
	}
	if err != nil {
		return "", err
	}
	return revisionOf(&written), nil
}

// unchanged returns the stored object, or the zero one when there is none to be, if its revision is old.
func (s *Backend) unchanged(ctx context.Context, n keystore.Name, old keystore.Revision) (object, error) {
	if old == "" {
		return object{}, ctx.Err() // the API server refuses to create what exists; a caller who may only create may not read
	}
	o, err := s.get(ctx, n)
	switch {
	case errors.Is(err, keystore.ErrNotFound):
		return object{}, fmt.Errorf("%w: %q is gone in %s", keystore.ErrConflict, n, s.place)
	case err != nil:
		return object{}, err
	case revisionOf(&o) != old:
		return object{}, fmt.Errorf("%w: %q has another revision in %s", keystore.ErrConflict, n, s.place)
	}
	return o, nil
}

// write creates or replaces. Strict validation has an API server refuse members that its custom resource definition
// would drop silently.
func (s *Backend) write(ctx context.Context, n keystore.Name, old keystore.Revision, body []byte) (object, error) {
	r := kubeapi.Request{
		Method: http.MethodPut, Path: s.object(n), Body: body,
		Query: url.Values{"fieldManager": {"keypost"}, "fieldValidation": {"Strict"}},
	}
	verbs, what := "get and update", "replace"
	if old == "" {
		r.Method, r.Path = http.MethodPost, s.collection
		verbs, what = "create", "create"
	}
	answer, err := s.call(ctx, r, objectLimit)
	if err == nil {
		return newObject(answer)
	}
	failed := fmt.Errorf("%s %s %q in %s: %w", what, s.one, n, s.place, s.advise(err, verbs))
	if kubeapi.IsStatus(err, http.StatusForbidden) || kubeapi.IsStatus(err, http.StatusUnauthorized) { // nothing was written
		failed = fmt.Errorf("%w: %w", keystore.ErrReadOnly, failed)
	}
	return object{}, failed
}
