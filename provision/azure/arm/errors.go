package arm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
)

// Error is an error about which the caller can do something.
type Error = cloud.Error[Problem]

// Problem is the kind of an [Error].
type Problem int

// The problems.
const (
	NoCredentials  Problem = iota + 1 // none were found, or Entra refuses them
	NoSubscription                    // the credentials see no such subscription
	Unregistered                      // the subscription has not registered a provider of resources
	Disallowed                        // a policy of the organisation forbids the change
)

func problem(p Problem, format string, args ...any) error {
	return &Error{Problem: p, Err: fmt.Errorf(format, args...)}
}

// callError is a call that failed, in one sentence, without the SDK's dump of the answer. It wraps the SDK's error, whose body is read
// only once, since reading it changes it: the error that ends a group of calls is also the error of those that it cuts short.
type callError struct {
	sentence string
	said     said // of a refusal
	err      error
}

func (e *callError) Error() string { return e.sentence }
func (e *callError) Unwrap() error { return e.err }

// explain returns an error of one sentence that names the failed call and the reason.
func explain(call string, err error) error {
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[*callError](err); is { // another call failed, which ended the context of this one
		return err
	}
	failed := func(format string, args ...any) error { return &callError{fmt.Sprintf(format, args...), said{}, err} }
	if errors.Is(err, context.Canceled) {
		return failed("%s: interrupted", call)
	}
	if r, is := errors.AsType[*azcore.ResponseError](err); is {
		return refusal(call, r)
	}
	if auth, is := errors.AsType[*azidentity.AuthenticationFailedError](err); is || strings.Contains(err.Error(), "failed to acquire a token") {
		if auth != nil && auth.RawResponse == nil && cloud.NobodyListens(err) {
			return failed("%s: Entra cannot be reached; see the network and HTTPS_PROXY (%s)", call, brief(err))
		}
		if kind, why := entraSays(auth); why != "" {
			return &Error{Problem: NoCredentials, Err: failed("%s: Entra refuses %s: %s", call, kind, why)}
		}
		return &Error{Problem: NoCredentials, Err: failed("%s: no credentials for Azure are good: %s", call, brief(err))}
	}
	if cloud.NobodyListens(err) {
		return failed("%s: Azure cannot be reached; see the network and HTTPS_PROXY (%s)", call, brief(err))
	}
	return failed("%s: %s", call, brief(err))
}

// entraSays returns what Entra refuses, and its code and sentence; nothing where it did not answer. Its sentences quote no secret.
func entraSays(auth *azidentity.AuthenticationFailedError) (kind, why string) {
	if auth == nil || auth.RawResponse == nil {
		return "", ""
	}
	var body struct {
		Description string `json:"error_description"`
	}
	data, err := runtime.Payload(auth.RawResponse)
	if err != nil || json.Unmarshal(data, &body) != nil {
		return "", ""
	}
	why, _, _ = strings.Cut(body.Description, "Trace ID:")
	kind = "the credentials"
	for _, code := range []string{"AADSTS7000215", "AADSTS7000222"} { // wrong, and expired
		if strings.HasPrefix(why, code+":") {
			kind = "the client secret"
		}
	}
	return kind, text.Sentence(strings.TrimRight(why, ". \r\n"), 600)
}

// refusal returns the error for an answer of Azure's.
func refusal(call string, r *azcore.ResponseError) error {
	body := bodyOf(r)
	failed := func(format string, args ...any) error { return &callError{fmt.Sprintf(format, args...), body, r} }
	said := body.sentence(r)
	switch {
	case HasCode(r, "AuthorizationFailed", "LinkedAuthorizationFailed"):
		return failed("the caller's roles do not allow %s (Azure says: %s)", call, said)
	case HasCode(r, "MissingSubscriptionRegistration"):
		return &Error{Problem: Unregistered, Err: failed("%s: %s", call, said)}
	case HasCode(r, "RequestDisallowedByPolicy"):
		return &Error{Problem: Disallowed, Err: failed("%s: %s (%s)", call, said, r.ErrorCode)}
	case transient(r.StatusCode) && asked(r) > longestPause:
		return failed("%s: Azure asks to wait %v before the next attempt, longer than keypost waits for a call: run this again then (Azure says: %s)",
			call, asked(r), cmp.Or(said, http.StatusText(r.StatusCode)))
	case r.StatusCode == http.StatusUnauthorized:
		return &Error{Problem: NoCredentials, Err: failed("the caller's credentials are not good for %s: %s (%s)", call, said, r.ErrorCode)}
	case r.StatusCode == http.StatusTooManyRequests:
		return failed("%s: Azure asks to come back later, again and again: %s", call, said)
	case r.StatusCode == http.StatusNotFound && body.Code == "":
		return failed("%s: the answer 404 has no error of Azure's: see what is between here and Azure", call)
	case r.ErrorCode == "":
		return failed("%s: HTTP status %d", call, r.StatusCode)
	}
	return failed("%s: %s (%s)", call, said, r.ErrorCode)
}

// asked returns how long an answer asks to wait before the next attempt; 0 if it does not say so in seconds, as Azure does
// (https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling).
func asked(r *azcore.ResponseError) time.Duration {
	if r.RawResponse == nil {
		return 0
	}
	seconds, err := strconv.ParseUint(r.RawResponse.Header.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// said is what the body of a refusal has
// (https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors).
type said struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// sentence returns what Azure says in r, on one line; its code if it says nothing.
func (s said) sentence(r *azcore.ResponseError) string {
	if s.Message != "" {
		return text.Sentence(strings.TrimRight(s.Message, ". \r\n"), 0)
	}
	return r.ErrorCode
}

// codeOf returns the code in the body of a refusal; empty without any. The SDK also takes a header for it.
func codeOf(err error, r *azcore.ResponseError) string {
	if e, is := errors.AsType[*callError](err); is {
		return e.said.Code
	}
	return bodyOf(r).Code
}

// bodyOf returns nothing for a body that is not Azure's.
func bodyOf(r *azcore.ResponseError) said {
	var body struct {
		Error said `json:"error"`
	}
	if r.RawResponse == nil {
		return said{}
	}
	if data, err := runtime.Payload(r.RawResponse); err != nil || json.Unmarshal(data, &body) != nil {
		return said{}
	}
	return body.Error
}

// brief returns the error of one attempt on one line.
func brief(err error) string {
	if r, is := errors.AsType[*azcore.ResponseError](err); is {
		return bodyOf(r).sentence(r)
	}
	return text.Sentence(err.Error(), 600)
}

// HasCode compares the code of Azure's answer, whatever its letter case.
func HasCode(err error, codes ...string) bool {
	r, is := errors.AsType[*azcore.ResponseError](err)
	return is && slices.ContainsFunc(codes, func(c string) bool { return strings.EqualFold(c, r.ErrorCode) })
}

// IsMissing reports whether Azure says that a thing, or what it is in, is not there. A page of a proxy with the status 404 says
// nothing of it: who believed that would delete, or write over, what others have.
func IsMissing(err error) bool {
	r, is := errors.AsType[*azcore.ResponseError](err)
	if !is || r.StatusCode != http.StatusNotFound {
		return false
	}
	switch strings.ToLower(codeOf(err, r)) {
	case "resourcegroupnotfound", "resourcenotfound", "parentresourcenotfound", "notfound", "roledefinitiondoesnotexist", "roleassignmentnotfound":
		return true
	}
	return false
}

// IsDenied reports whether the caller may not make a call.
func IsDenied(err error) bool { return HasCode(err, "AuthorizationFailed") }

// Answer returns what a call that writes has come to.
func Answer(err error) (cloud.Answer, error) {
	switch {
	case err == nil:
		return cloud.Accepted, nil
	case HasCode(err, "RoleAssignmentExists"): // it binds the same, under a name of somebody else's choice
		return cloud.Accepted, nil
	case IsMissing(err) || passes(err): // what was made a moment ago is not known everywhere yet
		return cloud.NotYet, err
	}
	return cloud.Refused, err
}

// Gone is Answer for a call that deletes: what is not there is deleted.
func Gone(err error) (cloud.Answer, error) {
	if IsMissing(err) {
		return cloud.Accepted, nil
	}
	return Answer(err)
}
