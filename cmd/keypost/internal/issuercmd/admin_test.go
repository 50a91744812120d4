package issuercmd

import (
	"context"
	"errors"
	"net/url"
	"testing"
)

func TestUnanswered(t *testing.T) {
	silent := &url.Error{Op: "Get", URL: "http://x", Err: context.DeadlineExceeded}
	if got := unanswered(silent).Error(); got != "no answer within 10s" {
		t.Errorf("%q", got)
	}
	refused := &url.Error{Op: "Get", URL: "http://x", Err: errors.New("connection refused")}
	if got := unanswered(refused).Error(); got != "connection refused" {
		t.Errorf("%q", got)
	}
}
