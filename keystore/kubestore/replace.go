package kubestore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/keypost/keypost/keystore"
)

// Replace sends the whole object with the resourceVersion that was read: the API server lets one of several such
// writers through, and holds the change against the rules of the custom resource definition. It has etcd's word that
// the write is durable before it answers.
//
// Besides the revision it compares generations: a stored one that set may not replace is a conflict.
//
// A proxy on the way may send a write again whose answer it lost, and then the second answer is "conflict", about our
// own write. So each write leaves a random annotation, and a conflict counts only when what is stored has another one.
func (s *Store) Replace(ctx context.Context, n keystore.Name, old keystore.Revision, set keystore.KeySet) (keystore.Revision, error) {
	if n != set.Name() {
		return "", fmt.Errorf("it is named %q", set.Name())
	}
	document, err := encode(set)
	if err != nil {
		return "", err
	}
	stored, err := s.unchanged(ctx, old, set)
	if err != nil {
		return "", err
	}
	id := rand.Text()
	body, err := stored.with(document, id)
	if err != nil {
		return "", fmt.Errorf("encode key set %q: %w", n, err)
	}
	written, err := s.write(ctx, n, old, body)
	if isConflict(err) {
		written, err = s.own(ctx, n, id)
	}
	if err != nil {
		return "", err
	}
	return written.revision(), s.holds(written, set)
}

// unchanged returns the stored object, or the zero one when there is none to be, after comparing it with what the caller
// knows and is about to write.
func (s *Store) unchanged(ctx context.Context, old keystore.Revision, set keystore.KeySet) (object, error) {
	n := set.Name()
	if old == "" {
		return object{}, ctx.Err() // the API server tells whether it exists; who may only create may not read
	}
	o, err := s.get(ctx, n)
	switch {
	case errors.Is(err, keystore.ErrNotFound):
		return object{}, fmt.Errorf("%w: %q is gone in %s", keystore.ErrConflict, n, s.api.place)
	case err != nil:
		return object{}, err
	case o.revision() != old:
		return object{}, fmt.Errorf("%w: %q has another revision in %s", keystore.ErrConflict, n, s.api.place)
	}
	// A document that does not parse has no generation to lose; who repairs it has seen its revision.
	if stored, err := o.keySet(n); err == nil && !set.MayReplace(stored) {
		return object{}, fmt.Errorf("%w: %q has generation %d in %s, and %d was to be written",
			keystore.ErrConflict, n, stored.Generation(), s.api.place, set.Generation())
	}
	return o, nil
}

// write creates or replaces. Strict validation has an API server refuse members that its custom resource definition
// would drop silently.
func (s *Store) write(ctx context.Context, n keystore.Name, old keystore.Revision, body []byte) (object, error) {
	r := request{
		method: http.MethodPut, name: n, body: body, limit: objectLimit,
		query: url.Values{"fieldManager": {"keypost"}, "fieldValidation": {"Strict"}},
	}
	verbs, what := "get and update", "replace"
	if old == "" {
		r.method, r.name = http.MethodPost, ""
		verbs, what = "create", "create"
	}
	answer, err := s.api.call(ctx, r)
	if err != nil {
		return object{}, s.refusal(fmt.Errorf("%s key set %q in %s: %w", what, n, s.api.place, advise(err, verbs, s.api.namespace)))
	}
	return newObject(answer)
}

// refusal marks the answers after which nothing was written.
func (s *Store) refusal(err error) error {
	var status *statusError
	if errors.As(err, &status) && (status.code == http.StatusForbidden || status.code == http.StatusUnauthorized) {
		return fmt.Errorf("%w: %w", keystore.ErrReadOnly, err)
	}
	return err
}

func isConflict(err error) bool {
	var s *statusError
	return errors.As(err, &s) && s.code == http.StatusConflict
}

// own returns what is stored if the write with that id put it there, and a conflict if another one did.
func (s *Store) own(ctx context.Context, n keystore.Name, id string) (object, error) {
	o, err := s.get(ctx, n)
	switch {
	case errors.Is(err, keystore.ErrNotFound):
		return object{}, fmt.Errorf("%w: %q is gone in %s", keystore.ErrConflict, n, s.api.place)
	case err != nil:
		return object{}, err
	case o.Annotations[writeID] == id:
		return o, nil
	}
	return object{}, fmt.Errorf("%w: %q has another revision in %s", keystore.ErrConflict, n, s.api.place)
}

// holds makes sure that the API server stored what it was sent: a webhook may rewrite objects, and a custom resource
// definition of another version may drop members.
func (s *Store) holds(o object, set keystore.KeySet) error {
	stored, err := o.keySet(set.Name())
	if err == nil && stored.Digest() == set.Digest() {
		return nil
	}
	if err == nil {
		err = errors.New("a webhook rewrites key sets, or the custom resource definition is another version's")
	}
	return fmt.Errorf("key set %q in %s is not stored as it was sent: %w", set.Name(), s.api.place, err)
}
