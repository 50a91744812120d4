package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keypost/keypost/provision/cloud"
)

const (
	callTime    = 5 * time.Minute  // one call with its retries
	attemptTime = 30 * time.Second // one request
	attempts    = 10
	firstPause  = 250 * time.Millisecond
	lastPause   = 20 * time.Second // ten attempts span more than the minute in which a quota is counted
)

// The services, as the first label of their hosts.
const (
	IAM             = "iam"
	ResourceManager = "cloudresourcemanager"
)

// Call is one method of a service.
type Call struct {
	Service string // one of the constants
	Name    string // "CreateServiceAccount"
	Needs   string // the permission that the caller needs for it
	Method  string // empty for GET
	Path    string // below /v1/
	Query   url.Values
	Body    any // nil for none

	Pool string // ID of the pool that the body names, which may just have been made

	// Once asks for one request: minutes later the call could undo what somebody else has changed meanwhile. Where another request might get
	// past what went wrong, the thing is read again first.
	Once bool
}

// String returns the method's name: "iam:CreateServiceAccount".
func (k Call) String() string { return k.Service + ":" + k.Name }

// key is the same for calls with the same input.
func (k Call) key() string {
	return fmt.Sprintf("%s %s %s?%s %s", k.Service, k.Method, k.Path, k.Query.Encode(), JSON(k.Body))
}

// Ask makes a call and decodes its answer into out.
func (c *Client) Ask(ctx context.Context, k Call, out any) error {
	_, err := c.send(ctx, k, out)
	return err
}

// send is Ask, and reports whether more than one request was sent. Requests are made again when Google says that it is busy,
// or when the answer is lost: what a lost request has done is found out by who reads next.
func (c *Client) send(ctx context.Context, k Call, out any) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	wait := c.API.Await(k.String())
	defer wait.Stop()
	for n := 1; ; n++ {
		failed := c.attempt(ctx, k, out)
		if failed == nil {
			return wait.Again(), nil
		}
		pause, worth := worthAgain(failed, n)
		if !worth || n == attempts || ctx.Err() != nil {
			return wait.Again(), c.explain(k, failed)
		}
		wait.Because(errors.New(oneLine(failed)))
		if pause, err = wait.Delay(pause, failed); err != nil {
			return wait.Again(), c.explain(k, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return wait.Again(), c.explain(k, context.Cause(ctx))
		}
		if k.Once {
			return true, readAgain{c.explain(k, failed)}
		}
	}
}

// attempt makes one request.
func (c *Client) attempt(ctx context.Context, k Call, out any) error {
	token, err := c.tokens.Token()
	if err != nil {
		return &tokenError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	var body io.Reader
	if k.Body != nil {
		body = bytes.NewReader(JSON(k.Body))
	}
	u := url.URL{Scheme: "https", Host: k.Service + "." + domain, Path: "/v1/" + k.Path, RawQuery: k.Query.Encode()}
	r, err := http.NewRequestWithContext(ctx, k.Method, u.String(), body)
	if err != nil {
		return err
	}
	token.SetAuthHeader(r)
	r.Header.Set("User-Agent", "keypost")
	if c.quota != "" {
		r.Header.Set("X-Goog-User-Project", c.quota)
	}
	if k.Body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it is read to its end, or of no use
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return refusal(res, data)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("the answer is not what Google answers: %s", oneLine(err))
	}
	return nil
}

// worthAgain returns after how long a request may be made again that failed for the n-th time. Google's own hint is obeyed up
// to a minute: a day, as for a project that has all the accounts that it may have, is not waited for.
func worthAgain(err error, n int) (time.Duration, bool) {
	pause := min(firstPause<<(n-1), lastPause)
	pause += rand.N(pause / 4) //nolint:gosec // so that parallel calls do not come back together
	var status int
	if refused, is := errors.AsType[*apiError](err); is {
		if refused.retry > time.Minute || refused.exhausted() {
			return 0, false
		}
		pause, status = max(pause, refused.retry), refused.status
	} else if failed, is := errors.AsType[*tokenError](err); is {
		status = failed.status()
	}
	switch status {
	case 0: // no answer
		return pause, true
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return pause, true
	}
	return 0, false
}

// List asks for all pages of a list and returns the items under a name.
func List[T any](ctx context.Context, c *Client, k Call, items string) ([]T, error) {
	var all []T
	query := url.Values{}
	maps.Copy(query, k.Query)
	for k.Query = query; ; {
		var page map[string]json.RawMessage // an empty list is {}
		if err := c.Ask(ctx, k, &page); err != nil {
			return nil, err
		}
		var part []T
		var next string
		if err := errors.Join(decode(page[items], &part), decode(page["nextPageToken"], &next)); err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
		if all = append(all, part...); next == "" {
			return all, nil
		}
		query.Set("pageToken", next)
	}
}

func decode(member json.RawMessage, into any) error {
	if member == nil {
		return nil
	}
	return json.Unmarshal(member, into)
}

// operation is a change of a pool or a provider, which Google makes in its own time.
type operation struct {
	Name  string       `json:"name"`
	Done  bool         `json:"done"`
	Error *statusError `json:"error"`
}

// change makes a call that answers with an operation, and waits for its end.
func (c *Client) change(ctx context.Context, k Call) (again bool, err error) {
	var op operation
	if again, err = c.send(ctx, k, &op); err != nil {
		return again, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	wait := c.API.Await(k.String() + ", which Google has begun")
	defer wait.Stop()
	for pause := firstPause; !op.Done; pause = min(2*pause, 5*time.Second) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return again, c.explain(k, context.Cause(ctx))
		}
		get := Call{Service: IAM, Name: "GetOperation", Needs: k.Needs[:strings.LastIndexByte(k.Needs, '.')+1] + "get", Path: op.Name}
		if err := c.Ask(ctx, get, &op); err != nil {
			return true, unknownEnd{err}
		}
	}
	if op.Error != nil {
		return again, c.explain(k, op.Error.refusal())
	}
	return again, nil
}

// readAgain is the error of a call that is made once, and that another request might get past.
type readAgain struct{ error }

func (r readAgain) Unwrap() error { return r.error }

// unknownEnd is the error of an operation that has begun and cannot be asked about.
type unknownEnd struct{ error }

func (u unknownEnd) Unwrap() error { return u.error }

// Step returns the step that makes a call. Its line reports it.
func (c *Client) Step(k Call, line string, diff ...string) cloud.Step {
	return cloud.Step{Key: k.key(), Line: line, Diff: diff, Call: func(ctx context.Context) (cloud.Answer, error) {
		var out json.RawMessage
		again, err := c.send(ctx, k, &out)
		return answer(k, again, err)
	}}
}

// ChangeStep is Step for a call that answers with an operation.
func (c *Client) ChangeStep(k Call, line string, diff ...string) cloud.Step {
	s := c.Step(k, line, diff...)
	s.Call = func(ctx context.Context) (cloud.Answer, error) {
		again, err := c.change(ctx, k)
		return answer(k, again, err)
	}
	return s
}

// answer says what the answer to a call that writes means.
func answer(k Call, again bool, err error) (cloud.Answer, error) {
	refused, _ := errors.AsType[*apiError](err)
	_, begun := errors.AsType[unknownEnd](err)
	_, later := errors.AsType[readAgain](err)
	switch {
	case later:
		return cloud.NotYet, err
	case err == nil || k.Method == http.MethodDelete && IsMissing(err):
		return cloud.Accepted, nil
	case begun:
		return cloud.Perhaps, err
	case refused == nil || refused.constraint != "":
		return cloud.Refused, err
	case again && (refused.code == "ALREADY_EXISTS" || refused.code == "ABORTED"):
		return cloud.Perhaps, err
	case refused.code == "ALREADY_EXISTS":
		return cloud.Exists, err
	case refused.passes(k) || refused.code == "ABORTED" || refused.code == "NOT_FOUND":
		return cloud.NotYet, err // it was planned from what was true a moment ago, or is not known everywhere yet
	}
	return cloud.Refused, err
}

// Query returns the query of a URL, of names each followed by its value.
func Query(pairs ...string) url.Values {
	q := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		q.Set(pair[0], pair[1])
	}
	return q
}

func seconds(header string) time.Duration {
	n, err := strconv.Atoi(header)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Second
}
