package fakeaws

import (
	"net/http"

	"github.com/keypost/keypost/test/fakecloud"
)

// Call is one request of IAM ("iam") or STS ("sts"), as it was recorded: its parameters are as sent, without the web identity
// token.
type Call = fakecloud.Call

// Fault is what goes wrong with one call. The zero value is nothing.
type Fault = fakecloud.Fault

// Throttle refuses the call as AWS does when there are too many: nothing happens.
func Throttle() Fault { return Fail(http.StatusBadRequest, "Throttling", "Rate exceeded") }

// Unavailable refuses the call with 503: nothing happens.
func Unavailable() Fault {
	return Fail(http.StatusServiceUnavailable, "ServiceUnavailable", "Service is unavailable")
}

// Fail refuses the call with any status, code and sentence: nothing happens.
func Fail(status int, code, message string) Fault {
	return Fault{Refusal: &failure{status, code, message}}
}
