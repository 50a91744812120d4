package fakegcp

import (
	"net/http"

	"github.com/keypost/keypost/test/fakecloud"
)

// Call is one request, as it was recorded: of one of the services iam, cloudresourcemanager, sts, iamcredentials
// and oauth2. Its code is google.rpc.Code's or RFC 6749's.
type Call = fakecloud.Call

// Fault is what goes wrong with one call. The zero value is nothing.
type Fault = fakecloud.Fault

// Unavailable refuses the call with 503: nothing happens.
func Unavailable() Fault {
	return Fail(http.StatusServiceUnavailable, "UNAVAILABLE", "The service is currently unavailable.")
}

// Fail refuses the call with any status of HTTP, code of google.rpc.Code and sentence: nothing happens.
func Fail(status int, code, message string) Fault {
	return Fault{Refusal: &failure{status: status, code: code, message: message}}
}
