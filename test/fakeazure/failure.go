package fakeazure

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

// failure is a refusal in Microsoft's words.
type failure struct {
	status  int
	code    string // "ResourceNotFound", or for the token endpoint "700211", a number of AADSTS
	message string
	oauth   string        // the error of RFC 6749, for the token endpoint
	after   time.Duration // when to come back; 0: not said
}

func (f *failure) Error() string { return f.code + ": " + f.message }

// name is the code as the record of calls has it.
func (f *failure) name() string {
	if f.oauth != "" {
		return "AADSTS" + f.code
	}
	return f.code
}

// body is the JSON of the refusal: Resource Manager's
// (https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling, CloudError), or that of
// the token endpoint.
func (f *failure) body(now time.Time, id string) any {
	if f.oauth == "" {
		return map[string]any{"error": map[string]string{"code": f.code, "message": f.message}}
	}
	n, _ := strconv.Atoi(f.code) // a code of ours is a number
	at := now.UTC().Format("2006-01-02 15:04:05Z")
	return map[string]any{
		"error": f.oauth,
		"error_description": fmt.Sprintf("AADSTS%s: %s Trace ID: %s Correlation ID: %s Timestamp: %s",
			f.code, f.message, id, id, at),
		"error_codes": []int{n}, "timestamp": at, "trace_id": id, "correlation_id": id,
		"error_uri": "https://login.microsoftonline.com/error?code=" + f.code,
	}
}

// header is what goes with a refusal.
func (f *failure) header(h http.Header) {
	if f.after > 0 {
		h.Set("Retry-After", seconds(f.after))
	}
	if f.oauth == "" {
		h.Set("X-Ms-Failure-Cause", "gateway")
		h.Set("X-Ms-Error-Code", f.code)
	}
}

// seconds is a time as Retry-After has it: whole seconds, at least one.
func seconds(d time.Duration) string { return strconv.Itoa(int(math.Max(1, math.Ceil(d.Seconds())))) }

func fail(status int, code, format string, a ...any) error {
	return &failure{status: status, code: code, message: fmt.Sprintf(format, a...)}
}

func notFound(code, format string, a ...any) error {
	return fail(http.StatusNotFound, code, format, a...)
}

func conflict(code, format string, a ...any) error {
	return fail(http.StatusConflict, code, format, a...)
}

func badRequest(code, format string, a ...any) error {
	return fail(http.StatusBadRequest, code, format, a...)
}

func noGroup(name string) error {
	return notFound("ResourceGroupNotFound", "Resource group '%s' could not be found.", name)
}

func noResource(kind, name, group string) error {
	return notFound("ResourceNotFound", "The Resource '%s/%s' under resource group '%s' was not found. For more details please go to "+
		"https://aka.ms/ARMResourceNotFoundFix", kind, name, group)
}

// throttled is the answer to more calls than a service takes.
func throttled(r route, subscription string, after time.Duration) *failure {
	f := &failure{status: http.StatusTooManyRequests, code: "SubscriptionRequestsThrottled", after: after,
		message: fmt.Sprintf("Number of requests for subscription '%s' and operation '%s' exceeded the backend storage limit. "+
			"Please try again after '%s' seconds.", subscription, strings.ToUpper(r.permission), seconds(after))}
	switch {
	case r.service == fakecloud.Login:
		f.code, f.oauth, f.message = "90055", "temporarily_unavailable", "The server is terminating the request because it received too many requests."
	case r.limit != "":
		f.code, f.message = "TooManyRequests", "The request is being throttled. Please try again later."
	}
	return f
}

// entra is a refusal of the token endpoint: 401 for a client that is not believed, 400 for the rest.
func entra(code int, kind, format string, a ...any) error {
	status := http.StatusBadRequest
	if kind == "invalid_client" {
		status = http.StatusUnauthorized
	}
	return &failure{status: status, code: strconv.Itoa(code), oauth: kind, message: fmt.Sprintf(format, a...)}
}
