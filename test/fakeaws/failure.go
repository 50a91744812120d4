package fakeaws

import (
	"fmt"
	"net/http"
)

// failure is a refusal in AWS's words.
type failure struct {
	status  int
	code    string
	message string
}

func (f *failure) Error() string { return f.code + ": " + f.message }

func fail(status int, code, format string, a ...any) error {
	return &failure{status, code, fmt.Sprintf(format, a...)}
}

func noSuchEntity(format string, a ...any) error {
	return fail(http.StatusNotFound, "NoSuchEntity", format, a...)
}

func conflict(code, format string, a ...any) error {
	return fail(http.StatusConflict, code, format, a...)
}

func validation(format string, a ...any) error {
	return fail(http.StatusBadRequest, "ValidationError", format, a...)
}

func invalidInput(format string, a ...any) error {
	return fail(http.StatusBadRequest, "InvalidInput", format, a...)
}

func malformed(format string, a ...any) error {
	return fail(http.StatusBadRequest, "MalformedPolicyDocument", format, a...)
}

func limitExceeded(quota string, limit int) error {
	return conflict("LimitExceeded", "Cannot exceed quota for %s: %d", quota, limit)
}
