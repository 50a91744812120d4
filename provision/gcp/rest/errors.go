package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
)

// Error is an error about which the caller can do something.
type Error = cloud.Error[Problem]

// Problem is the kind of an [Error].
type Problem int

// The problems. Any call may have one of the first three.
const (
	NoCredentials Problem = iota + 1 // none were found
	WrongProject                     // the credentials see no such project
	Denied                           // the caller does not have a permission

	NotOwned       // a pool, provider, account or role is somebody else's, and may be adopted
	OtherIssuer    // a provider trusts another issuer, and a cluster may live by that
	PoolUnusable   // a pool that is to be used is missing, deleted or disabled
	NothingToMove  // no cluster lives by the provider from which it is to move, or by another issuer
	OtherCopy      // a provider holds a copy of other keys, which may be newer than those of the store
	NoProvider     // a provider is missing or deleted: it takes no token
	AccountsDiffer // the accounts of a cluster that is to move are not what its requests ask for
)

// Problemf returns an error of a problem.
func Problemf(p Problem, format string, args ...any) error {
	return &Error{Problem: p, Err: fmt.Errorf(format, args...)}
}

// Is reports whether an error has a problem.
func Is(err error, p Problem) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Problem == p
}

// apiError is a refusal, in Google's words (https://google.aip.dev/193).
type apiError struct {
	status     int    // of HTTP
	code       string // of google.rpc.Code: "NOT_FOUND"
	message    string
	reason     string            // "SERVICE_DISABLED"
	metadata   map[string]string // of the reason
	violations []string          // of preconditions
	constraint string            // of the organisation, that is violated
	retry      time.Duration     // after which to come back; 0: it does not say
}

func (e *apiError) Error() string {
	said := e.message
	for _, v := range e.violations {
		if !strings.Contains(said, v) { // mostly it is the message once more
			said += " " + v
		}
	}
	return fmt.Sprintf("%s (%s)", text.Sentence(said, 0), e.code)
}

// exhausted reports whether the project has as many of a thing as it may have: coming back does not help.
func (e *apiError) exhausted() bool {
	return e.code == "RESOURCE_EXHAUSTED" && strings.HasPrefix(e.message, "Maximum number of")
}

// statusError is google.rpc.Status, and the object in a refusal's body.
type statusError struct {
	Code    int    `json:"code"` // of HTTP in a body, of google.rpc.Code in an operation
	Message string `json:"message"`
	Status  string `json:"status"`
	Details []struct {
		Type       string            `json:"@type"`
		Reason     string            `json:"reason"`
		Metadata   map[string]string `json:"metadata"`
		RetryDelay string            `json:"retryDelay"`
		Violations []struct {
			Type        string `json:"type"`
			Description string `json:"description"`
		} `json:"violations"`
	} `json:"details"`
}

// refusal is a status as an error. The error of an operation has a code and no status.
func (s statusError) refusal() *apiError {
	e := &apiError{status: s.Code, code: s.Status, message: s.Message}
	if s.Status == "" {
		e.code = fmt.Sprintf("code %d", s.Code)
	}
	for _, d := range s.Details {
		if d.Reason != "" {
			e.reason, e.metadata = d.Reason, d.Metadata
		}
		if after, err := time.ParseDuration(d.RetryDelay); err == nil {
			e.retry = after
		}
		for _, v := range d.Violations {
			e.violations = append(e.violations, v.Description)
			if strings.HasPrefix(v.Type, "constraints/") {
				e.constraint = v.Type
			}
		}
	}
	return e
}

// refusal reads the body of an answer that is not 200.
func refusal(res *http.Response, data []byte) *apiError {
	var body struct {
		Error statusError `json:"error"`
	}
	if json.Unmarshal(data, &body) != nil || body.Error.Message == "" {
		body.Error = statusError{Message: "the answer is " + res.Status, Status: http.StatusText(res.StatusCode)}
	}
	e := body.Error.refusal()
	e.status = res.StatusCode
	e.retry = max(e.retry, seconds(res.Header.Get("Retry-After")))
	return e
}

// tokenError says why there is no access token for a call.
type tokenError struct{ err error }

func (e *tokenError) Unwrap() error { return e.err }

// Error leaves out what the token endpoint sent but for its own reason: nothing of a credential gets into a log.
func (e *tokenError) Error() string {
	if r, is := errors.AsType[*oauth2.RetrieveError](e.err); is {
		var said struct { // RFC 6749, section 5.2
			Code        string `json:"error"`
			Description string `json:"error_description"`
		}
		if json.Unmarshal(r.Body, &said) != nil || said.Code == "" {
			return "the token endpoint answers " + r.Response.Status
		}
		return strings.TrimSuffix(said.Code+": "+text.Sentence(said.Description, 0), ": ")
	}
	return oneLine(e.err)
}

// status is that of the token endpoint's answer; 400 for what went wrong on this machine, 0 for no answer.
func (e *tokenError) status() int {
	if r, is := errors.AsType[*oauth2.RetrieveError](e.err); is && r.Response != nil {
		return r.Response.StatusCode
	}
	if _, network := errors.AsType[net.Error](e.err); network {
		return 0
	}
	return http.StatusBadRequest
}

// explain returns an error that names the failed call and the reason, and says what to do where that is known.
func (c *Client) explain(k Call, err error) error {
	refused, is := errors.AsType[*apiError](err)
	switch {
	case is:
		return c.explainRefusal(k, refused)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: interrupted: %w", k, context.Canceled)
	case cloud.NobodyListens(err):
		return fmt.Errorf("%s: Google cannot be reached; see the network and HTTPS_PROXY (%s)", k, oneLine(err))
	}
	if failed, is := errors.AsType[*tokenError](err); is {
		return Problemf(NoCredentials, "%s: the credentials of the %s give no access token: %w", k, c.Source, failed)
	}
	return fmt.Errorf("%s: %s", k, oneLine(err))
}

func (c *Client) explainRefusal(k Call, e *apiError) error {
	disabled := e.reason == "SERVICE_DISABLED" || strings.Contains(e.message, "it is disabled. Enable it")
	switch {
	case e.constraint != "":
		return fmt.Errorf("%s: Google Cloud refuses: an organisation policy (%s) forbids it, and its administrator must allow it: %w", k, e.constraint, e)
	case disabled:
		return fmt.Errorf("%s needs an API that is not enabled in the project (Google says: %w)", k, e)
	case e.code == "PERMISSION_DENIED":
		needs := e.metadata["permission"]
		if needs == "" {
			needs = k.Needs
		}
		return Problemf(Denied, "the caller does not have the permission %s, which %s needs (Google says: %w)", needs, k, e)
	case e.code == "UNAUTHENTICATED":
		return Problemf(NoCredentials, "Google does not take the credentials of the %s for %s: %w", c.Source, k, e)
	}
	return fmt.Errorf("%s: %w", k, e)
}

// oneLine returns the message of an error on one line.
func oneLine(err error) string { return text.Sentence(err.Error(), 0) }

// IsMissing reports whether there is no such thing.
func IsMissing(err error) bool {
	e, ok := errors.AsType[*apiError](err)
	return ok && e.code == "NOT_FOUND"
}

// refusals are the sentences of changes that are taken after a while. Any other refusal with INVALID_ARGUMENT or FAILED_PRECONDITION is
// final.
var refusals = []struct {
	text   *regexp.Regexp
	source string
}{
	{regexp.MustCompile(`^Service account \S+ does not exist`), "what ccoctl repeats: its pkg/cmd/provisioning/gcp/create_service_accounts.go"},
	{regexp.MustCompile(`^Role \(?projects/\S+ does not exist`), "github.com/hashicorp/terraform-provider-google/issues/1694"},
	{regexp.MustCompile(`^Identity Pool does not exist \((?:\S*/workloadIdentityPools/)?([a-z0-9-]+)\)`), // the run's own
		"github.com/terraform-google-modules/terraform-google-kubernetes-engine/issues/916"},
	{regexp.MustCompile(`^Inconsistent representation of deleted member`), "github.com/GoogleCloudPlatform/k8s-config-connector/issues/279"},
	{regexp.MustCompile(`(?:is|is not|been) (?:deleted|marked for deletion)`), // a deletion or an undeletion was made since the plan
		"https://cloud.google.com/iam/docs/creating-custom-roles#deleting-custom-role"},
	{regexp.MustCompile(`as it is already deleted`), "github.com/GoogleCloudPlatform/k8s-config-connector/issues/338"},
}

// passes reports whether a change that was refused is taken later: what it names was just made, or is just being deleted.
func (e *apiError) passes(k Call) bool {
	final := e.constraint != "" || strings.HasPrefix(e.message, "You can't create") // the ID of a deleted role is blocked for 37 days
	if final || e.code != "INVALID_ARGUMENT" && e.code != "FAILED_PRECONDITION" {
		return false
	}
	for _, r := range refusals {
		if m := r.text.FindStringSubmatch(e.message); m != nil {
			return len(m) == 1 || m[1] == k.Pool
		}
	}
	return false
}
