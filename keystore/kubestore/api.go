package kubestore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

const (
	group   = "keypost.dev"
	version = "v1"
)

// kind is what a store keeps: a resource, and its names in messages.
type kind struct{ resource, one, many string }

func keySets() kind      { return kind{"keysets", "key set", "key sets"} }
func observations() kind { return kind{"observations", "observation", "observations"} }

// timeout bounds one request with its answer; a page of a listing is the largest.
const timeout = 20 * time.Second

// object returns the path of an object.
func (s *Backend) object(n keystore.Name) string { return s.collection + "/" + string(n) }

// throttledTries is how often a request is sent that the API server put off without looking at it (429).
const throttledTries = 4

// call sends a request and returns the answer of a success, of at most limit bytes. Only "too many requests" is sent again: that one was not
// looked at. After any other trouble a write may have happened.
func (s *Backend) call(ctx context.Context, r kubeapi.Request, limit int64) ([]byte, error) {
	for try := 1; ; try++ {
		body, err := s.client.Call(ctx, r, kubeapi.Limits{Time: s.timeout, Bytes: limit})
		status, ok := errors.AsType[*kubeapi.StatusError](err)
		if !ok || status.Code != http.StatusTooManyRequests || try == throttledTries {
			return body, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(status.After):
		}
	}
}

// isAbsent reports whether the API server says that there is no object n. A 404 that is not about n is trouble: no such
// namespace, or no custom resource definition, and then nothing is known of any object.
func (s *Backend) isAbsent(err error, n keystore.Name) bool {
	e, ok := errors.AsType[*kubeapi.StatusError](err)
	return ok && e.Code == http.StatusNotFound && e.Reason == "NotFound" &&
		e.Group == group && e.Kind == s.resource && e.Name == string(n)
}

// advise adds to an error of the API server what an operator can do.
func (s *Backend) advise(err error, verbs string) error {
	e, ok := errors.AsType[*kubeapi.StatusError](err)
	if !ok {
		return err
	}
	switch {
	case e.Code == http.StatusUnauthorized:
		return fmt.Errorf("%w; the credentials are wrong or have run out: renew them", err)
	case e.Code == http.StatusForbidden && strings.Contains(e.Message, " cannot "): // RBAC's words, not an admission plugin's
		return fmt.Errorf("%w; no permission: the role needs %s on %s.%s in namespace %s", err, verbs, s.resource, group, s.namespace)
	case e.Code == http.StatusNotFound && e.Reason == "":
		return fmt.Errorf("%w; it knows no %s: install the custom resource definition %s.%s", err, s.many, s.resource, group)
	case e.Code == http.StatusGone:
		return fmt.Errorf("%w; it has forgotten the state that was being listed, and the next listing begins anew", err)
	}
	return err
}

// oneLine makes a server's text fit into a sentence: one printable line, not too long.
func oneLine(s string) string { return text.OneLine(s, 500) }
