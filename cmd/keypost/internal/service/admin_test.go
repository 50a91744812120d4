package service

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
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

// keypostd has its own words for it, which a terminal need not trust.
func TestAdminRefuses(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "\x1b[2J", http.StatusForbidden) }))
	defer srv.Close()
	_, err := AskAdmin(t.Context(), srv.URL)
	if err == nil || !strings.Contains(err.Error(), "clients on its own machine only") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%v", err)
	}
}
