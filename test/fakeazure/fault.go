package fakeazure

import (
	"net/http"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

// Call is one request, as it was recorded. Its service is a resource provider's namespace ("Microsoft.ManagedIdentity"), "login"
// or "blob"; its permission is the action that it needs ("Microsoft.ManagedIdentity/userAssignedIdentities/write"). The bodies
// of token requests are left out.
type Call = fakecloud.Call

// Fault is what goes wrong with one call. The zero value is nothing.
type Fault = fakecloud.Fault

// Throttle refuses the call with 429 and asks to come back after a time, which is sent in whole seconds: nothing happens.
func Throttle(after time.Duration) Fault { return Fault{Throttle: max(after, 1)} }

// Unavailable refuses the call with 503: nothing happens.
func Unavailable() Fault {
	return Fail(http.StatusServiceUnavailable, "ServiceUnavailable", "The service is temporarily unavailable. Please retry later.")
}

// Fail refuses the call with any status of HTTP, code and sentence: nothing happens.
func Fail(status int, code, message string) Fault {
	return Fault{Refusal: &failure{status: status, code: code, message: message}}
}
