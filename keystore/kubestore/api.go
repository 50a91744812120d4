package kubestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

const (
	group    = "keypost.dev"
	version  = "v1"
	resource = "keysets"
)

// timeout bounds one request with its answer; a page of a listing is the largest.
const timeout = 20 * time.Second

// api is the key sets of one namespace, asked with plain HTTP requests. A typed client would decode documents into maps
// and encode them again, and an informer would keep them all in memory; what is needed is four verbs on one resource.
type api struct {
	collection string // URL, without a trailing slash
	namespace  string
	place      string // "namespace NS at HOST", for messages
	client     *http.Client
	timeout    time.Duration
	shortest   time.Duration // what a watch lasts at least, or something on the way ends every watch
}

func newAPI(config *rest.Config, namespace string) (api, error) {
	config.Timeout = 0 // each request has its own; a watch lasts longer
	config.UserAgent = "keypost"
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return api{}, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return api{}, err
	}
	own := *client                                                                                    // it may be http.DefaultClient
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token would go along
	root := strings.TrimSuffix(base.Path, "/")
	base.Path, base.RawQuery = root+"/apis/"+group+"/"+version+"/namespaces/"+namespace+"/"+resource, ""
	return api{
		collection: base.String(), namespace: namespace, client: &own, timeout: timeout, shortest: time.Second,
		place: fmt.Sprintf("namespace %s at %s", namespace, base.Host+root),
	}, nil
}

type request struct {
	method string
	name   keystore.Name // empty: the collection
	query  url.Values
	accept string // empty: the object as it is
	body   []byte
	limit  int64 // bytes of the answer
}

// statusError is an answer other than success.
type statusError struct {
	code    int
	reason  string // of a Kubernetes Status; empty when something else answered
	message string
	kind    string // resource that the Status is about
	name    string
	after   time.Duration // when to ask again
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the API server answers %d: %s", e.code, e.message)
}

// throttledTries is how often a request is sent that the API server put off without looking at it (429).
const (
	throttledTries = 4
	longestPause   = 5 * time.Second
)

// call sends a request and returns the answer of a success. Only "too many requests" is sent again: that one was not
// looked at. After any other trouble a write may have happened.
func (a api) call(ctx context.Context, r request) ([]byte, error) {
	for try := 1; ; try++ {
		body, err := a.once(ctx, r)
		var status *statusError
		if !errors.As(err, &status) || status.code != http.StatusTooManyRequests || try == throttledTries {
			return body, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(status.after):
		}
	}
}

func (a api) once(ctx context.Context, r request) ([]byte, error) {
	inTime, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	body, err := a.exchange(inTime, r)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("no answer within %v", a.timeout)
	}
	return body, err
}

func (a api) exchange(ctx context.Context, r request) ([]byte, error) {
	resp, err := a.send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, r.limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the API server's answer ended early: %w", plain(err))
	case int64(len(body)) > r.limit:
		return nil, fmt.Errorf("the API server's answer is larger than %d bytes", r.limit)
	}
	return body, nil
}

// send returns the answer of a success, whose body the caller closes.
func (a api) send(ctx context.Context, r request) (*http.Response, error) {
	target := a.collection
	if r.name != "" {
		target += "/" + string(r.name)
	}
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, plain(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, newStatusError(resp)
}

func newStatusError(resp *http.Response) *statusError {
	e := &statusError{code: resp.StatusCode, after: time.Second}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s >= 0 {
		e.after = min(time.Duration(s)*time.Second, longestPause)
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // what is missing of it says nothing either
	var status struct {
		Kind, Reason, Message string
		Details               struct{ Group, Kind, Name string }
	}
	if err := json.Unmarshal(body, &status); err != nil || status.Kind != "Status" {
		e.message = oneLine(string(body))
		return e
	}
	e.reason, e.message = status.Reason, oneLine(status.Message)
	if status.Details.Group == group {
		e.kind, e.name = status.Details.Kind, status.Details.Name
	}
	return e
}

// isAbsent tells that there is no key set n where there could be one. A 404 that is not about n is trouble: no such
// namespace, or no custom resource definition, and then nothing is known of any key set.
func isAbsent(err error, n keystore.Name) bool {
	var s *statusError
	return errors.As(err, &s) && s.code == http.StatusNotFound && s.reason == "NotFound" && s.kind == resource && s.name == string(n)
}

// isGone tells that the API server has forgotten the state that was asked for (410): etcd was compacted.
func isGone(err error) bool {
	var s *statusError
	return errors.As(err, &s) && s.code == http.StatusGone || errors.Is(err, errAnotherState)
}

// advise adds to what the API server said what is to be done.
func advise(err error, verbs, namespace string) error {
	var s *statusError
	if !errors.As(err, &s) {
		return err
	}
	switch {
	case s.code == http.StatusUnauthorized:
		return fmt.Errorf("%w; the credentials are wrong or have run out: renew them", err)
	case s.code == http.StatusForbidden && strings.Contains(s.message, " cannot "): // RBAC's words, not an admission plugin's
		return fmt.Errorf("%w; no permission: the role needs %s on %s.%s in namespace %s", err, verbs, resource, group, namespace)
	case s.code == http.StatusNotFound && s.reason == "":
		return fmt.Errorf("%w; it knows no key sets: install the custom resource definition %s.%s", err, resource, group)
	case s.code == http.StatusGone:
		return fmt.Errorf("%w; it keeps forgetting the state that is being listed", err)
	}
	return err
}

// plain drops the method and URL that net/http puts before an error: the caller says what was done where.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// oneLine makes what a server says fit into a sentence: one printable line, not too long.
func oneLine(s string) string { return text.OneLine(s, 500) }
