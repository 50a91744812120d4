package fakegcp

import (
	"fmt"
	"net/http"
	"time"
)

// failure is a refusal in Google's words.
type failure struct {
	status  int    // of HTTP
	code    string // "NOT_FOUND" (google.rpc.Code), or the error of RFC 6749 when oauth
	message string
	details []any
	oauth   bool // in the form of RFC 6749, as the token endpoints answer
}

func (f *failure) Error() string { return f.code + ": " + f.message }

// body is the JSON of the refusal. The list of errors is the older half, which Google's clients read the reason from
// (https://cloud.google.com/apis/design/errors).
func (f *failure) body() any {
	if f.oauth {
		return map[string]string{"error": f.code, "error_description": f.message}
	}
	type item struct {
		Message string `json:"message"`
		Domain  string `json:"domain"`
		Reason  string `json:"reason"`
	}
	type status struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Errors  []item `json:"errors"`
		Status  string `json:"status"`
		Details []any  `json:"details,omitempty"`
	}
	return map[string]status{"error": {f.status, f.message, []item{{f.message, "global", reason(f.code)}}, f.code, f.details}}
}

func reason(code string) string {
	switch code {
	case "NOT_FOUND":
		return "notFound"
	case "ALREADY_EXISTS":
		return "alreadyExists"
	case "FAILED_PRECONDITION":
		return "failedPrecondition"
	case "ABORTED":
		return "aborted"
	case "PERMISSION_DENIED":
		return "forbidden"
	case "RESOURCE_EXHAUSTED":
		return "rateLimitExceeded"
	case "UNAUTHENTICATED":
		return "authError"
	case "INVALID_ARGUMENT":
		return "badRequest"
	}
	return "backendError"
}

func fail(status int, code, format string, a ...any) *failure {
	return &failure{status: status, code: code, message: fmt.Sprintf(format, a...)}
}

func notFound(format string, a ...any) error {
	return fail(http.StatusNotFound, "NOT_FOUND", format, a...)
}

// absent is how IAM answers for a pool, a provider or an operation that is not there.
func absent() error { return notFound("Requested entity was not found.") }

// taken is how IAM answers when the ID of a pool or a provider is used, or was within 30 days.
func taken() error {
	return fail(http.StatusConflict, "ALREADY_EXISTS", "Requested entity already exists")
}

func invalid(format string, a ...any) error {
	return fail(http.StatusBadRequest, "INVALID_ARGUMENT", format, a...)
}

func precondition(format string, a ...any) error {
	return fail(http.StatusBadRequest, "FAILED_PRECONDITION", format, a...)
}

// concurrent is the answer to a write whose etag is not the present one.
func concurrent() error {
	return fail(http.StatusConflict, "ABORTED",
		"There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff.")
}

// oauth is a refusal of a token endpoint.
func oauth(code, format string, a ...any) error {
	return &failure{status: http.StatusBadRequest, code: code, message: fmt.Sprintf(format, a...), oauth: true}
}

// denied is a refusal because a permission is missing.
func denied(permission, resource string) error {
	f := fail(http.StatusForbidden, "PERMISSION_DENIED", "Permission '%s' denied on resource '%s' (or it may not exist).", permission, resource)
	if resource == "" {
		f.message = fmt.Sprintf("Permission '%s' denied on resource (or it may not exist).", permission)
	}
	f.details = []any{map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "IAM_PERMISSION_DENIED",
		"domain": "iam.googleapis.com", "metadata": map[string]string{"permission": permission, "resource": resource}}}
	return f
}

// quota is the answer to more calls than a service takes, with the time after which to come back.
func (o Options) quota(service string, after time.Duration) *failure {
	if service == "sts" {
		return &failure{status: http.StatusTooManyRequests, code: "quota_exceeded", oauth: true,
			message: "The request was throttled due to rate limit: sts.googleapis.com/requests. Please retry after a few seconds."}
	}
	f := fail(http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", "Quota exceeded for quota metric 'Write requests' and limit "+
		"'Write requests per minute' of service '%s.googleapis.com' for consumer 'project_number:%s'.", service, o.Number)
	f.details = []any{
		map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RATE_LIMIT_EXCEEDED", "domain": "googleapis.com",
			"metadata": map[string]string{"service": service + ".googleapis.com", "consumer": "projects/" + o.Number}},
		retryInfo(after),
	}
	return f
}

func retryInfo(after time.Duration) any {
	return map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": fmt.Sprintf("%gs", after.Seconds())}
}
