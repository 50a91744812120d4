package arm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

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

// The problems. Any call may have one of the first four.
const (
	NoCredentials  Problem = iota + 1 // none were found, or Entra refuses them
	NoSubscription                    // the credentials see no such subscription
	Unregistered                      // the subscription has not registered a provider of resources
	Disallowed                        // a policy of the organisation forbids the change

	WrongTenant    // the subscription belongs to another tenant than the one that is meant
	NotOwned       // a thing does not have the owner's tag, and may be adopted
	OtherIssuer    // identities trust another issuer, and a cluster may live by that
	WrongAlgorithm // a key signs with something that Entra does not take
	NameTaken      // another subscription of the tenant has a custom role of that name
	OtherGroup     // the identities that have the roles are not in the resource group that was named
	OthersInGroup  // a resource group that is to be deleted has things of somebody else
	UnknownIssuer  // no key set of the store has the issuer URL, and identities would trust it from now on
)

// Refuse returns the error for a problem.
func Refuse(p Problem, format string, args ...any) error {
	return &Error{Problem: p, Err: fmt.Errorf(format, args...)}
}

// callError is a call that failed, in one sentence, without the SDK's dump of the answer. It wraps the SDK's error.
type callError struct {
	sentence string
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
	failed := func(format string, args ...any) error {
		return &callError{call + ": " + fmt.Sprintf(format, args...), err}
	}
	if r, is := errors.AsType[*azcore.ResponseError](err); is {
		return refusal(call, r)
	}
	auth, is := errors.AsType[*azidentity.AuthenticationFailedError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return failed("interrupted")
	case cloud.NobodyListens(err):
		return failed("Azure cannot be reached; see the network and HTTPS_PROXY (%s)", brief(err))
	case is && auth.RawResponse != nil:
		return &Error{Problem: NoCredentials, Err: failed("Entra refuses the credentials: %s", cmp.Or(entraSays(auth.RawResponse), brief(err)))}
	case is || strings.Contains(err.Error(), "failed to acquire a token"):
		return &Error{Problem: NoCredentials, Err: failed("no credentials for Azure are good: %s", brief(err))}
	}
	return failed("%s", brief(err))
}

// entraSays returns Entra's code and sentence, without what only Microsoft can look up; empty if it says nothing.
func entraSays(r *http.Response) string {
	var body struct {
		Description string `json:"error_description"`
	}
	if data, err := runtime.Payload(r); err != nil || json.Unmarshal(data, &body) != nil {
		return ""
	}
	why, _, _ := strings.Cut(body.Description, "Trace ID:")
	return text.Sentence(strings.TrimRight(why, ". \r\n"), 600)
}

// refusal returns the error for an answer of Azure's.
func refusal(call string, r *azcore.ResponseError) error {
	code := cmp.Or(r.ErrorCode, fmt.Sprint("HTTP status ", r.StatusCode))
	says := cmp.Or(messageOf(r), code)
	failed := &callError{fmt.Sprintf("%s: %s (%s)", call, says, code), r}
	switch {
	case HasCode(r, "AuthorizationFailed", "LinkedAuthorizationFailed"):
		failed.sentence = fmt.Sprintf("the caller's roles do not allow %s (Azure says: %s)", call, says)
	case HasCode(r, "MissingSubscriptionRegistration"):
		return &Error{Problem: Unregistered, Err: failed}
	case HasCode(r, "RequestDisallowedByPolicy"):
		return &Error{Problem: Disallowed, Err: failed}
	case r.StatusCode == http.StatusUnauthorized:
		return &Error{Problem: NoCredentials, Err: failed}
	}
	return failed
}

// messageOf returns what the body of a refusal says, on one line
// (https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors).
func messageOf(r *azcore.ResponseError) string {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if data, err := runtime.Payload(r.RawResponse); err != nil || json.Unmarshal(data, &body) != nil {
		return ""
	}
	return text.Sentence(strings.TrimRight(body.Error.Message, ". \r\n"), 0)
}

// brief returns an error on one line.
func brief(err error) string { return text.Sentence(err.Error(), 600) }

// HasCode compares the code of Azure's answer, whatever its letter case.
func HasCode(err error, codes ...string) bool {
	r, is := errors.AsType[*azcore.ResponseError](err)
	return is && slices.ContainsFunc(codes, func(c string) bool { return strings.EqualFold(c, r.ErrorCode) })
}

// IsMissing reports whether Azure says that a thing, or what it is in, is not there. Any other 404, as a proxy's page, does not say so.
func IsMissing(err error) bool {
	return HasCode(err, "ResourceGroupNotFound", "ResourceNotFound", "ParentResourceNotFound", "NotFound", "RoleDefinitionDoesNotExist",
		"RoleAssignmentNotFound")
}

// IsDenied reports whether the caller may not make a call.
func IsDenied(err error) bool { return HasCode(err, "AuthorizationFailed") }

// underWay is what a refusal with the code Conflict says where another change of the same thing has not ended
// (https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations).
var underWay = regexp.MustCompile(`(?i)\b(?:concurrent(?:ly)?|in progress|being (?:deleted|updated|modified))\b`)

// passes reports whether a refusal passes by itself: what is named was just made, or is still being changed.
//
// Sources: https://learn.microsoft.com/azure/role-based-access-control/troubleshooting,
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors,
// github.com/hashicorp/terraform-provider-azurerm/issues/19968.
func passes(err error) bool {
	return IsMissing(err) || HasCode(err, "Conflict") && underWay.MatchString(err.Error()) ||
		HasCode(err, "PrincipalNotFound", "RoleDefinitionHasAssignments", "ResourceGroupBeingDeleted", "AnotherOperationInProgress",
			"ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity")
}

// Answer returns what a call that writes has come to.
func Answer(err error) (cloud.Answer, error) {
	switch {
	case err == nil:
		return cloud.Accepted, nil
	case HasCode(err, "RoleAssignmentExists"): // it binds the same, under a name of somebody else's choice
		return cloud.Accepted, nil
	case passes(err):
		return cloud.NotYet, err
	}
	return cloud.Refused, err
}
