package fetch

import (
	"net/http"
	"testing"
	"time"
)

// late answers after the client has given up, as a server may that sees the connection being closed.
type late struct{}

func (late) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	time.Sleep(10 * time.Millisecond)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

func TestLateAnswerIsNone(t *testing.T) {
	c := &Client{http: &http.Client{Timeout: 50 * time.Millisecond, Transport: late{}}}
	if a, err := c.Get(t.Context(), "https://oidc.example.com/prod-a"); !IsTimeout(err) {
		t.Errorf("%+v, %v", a, err)
	}
}
