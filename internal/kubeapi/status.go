package kubeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
)

// StatusError is an answer other than success.
type StatusError struct {
	Code    int           // of HTTP
	Status  bool          // the answer is a Kubernetes Status; something on the way may have answered otherwise
	Reason  string        // of the Status
	Message string        // of the Status, one printable line; empty without one: another body may have anything in it
	Group   string        // of the resource that the Status is about, and below
	Kind    string        // the resource itself, in the plural
	Name    string        // of the object
	After   time.Duration // when to ask again
}

func (e *StatusError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the API server answers %d", e.Code)
	}
	return fmt.Sprintf("the API server answers %d: %s", e.Code, e.Message)
}

// IsStatus reports whether err is an answer with that code.
func IsStatus(err error, code int) bool {
	e, ok := errors.AsType[*StatusError](err)
	return ok && e.Code == code
}

const (
	maxStatus    = 1 << 20 // bytes
	maxMessage   = 500     // characters
	longestPause = 5 * time.Second
)

func newStatusError(resp *http.Response) *StatusError {
	e := &StatusError{Code: resp.StatusCode, After: time.Second}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s >= 0 {
		e.After = min(time.Duration(s)*time.Second, longestPause)
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxStatus)) // a part of it is enough for a message
	var status struct {
		Kind, Reason, Message string
		Details               struct{ Group, Kind, Name string }
	}
	if err := json.Unmarshal(body, &status); err != nil || status.Kind != "Status" {
		return e
	}
	e.Status, e.Reason, e.Message = true, status.Reason, text.OneLine(hideSent(status.Message, resp.Request), maxMessage)
	e.Group, e.Kind, e.Name = status.Details.Group, status.Details.Kind, status.Details.Name
	return e
}

// hideSent hides the credentials of the request as client-go sent it: whatever is in front of an API server may send them back.
func hideSent(message string, sent *http.Request) string {
	_, credential, _ := strings.Cut(sent.Header.Get("Authorization"), " ")
	_, password, _ := sent.BasicAuth()
	return text.Hide(text.Hide(message, credential), password)
}
