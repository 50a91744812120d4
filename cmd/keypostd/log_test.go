package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestAccessLog(t *testing.T) {
	var out bytes.Buffer
	log, err := newLogger(logConfig{Level: "info", Format: "json"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	h := accessLog(log, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	r := httptest.NewRequest(http.MethodGet, "https://oidc.example.com/a?token=secret", nil)
	r.Host, r.URL.Path = "a\nb\x1b[31m", "/"+strings.Repeat("x", 8000)
	r.Header.Set("Authorization", "Bearer secret")
	h.ServeHTTP(httptest.NewRecorder(), r)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %q", err, &out)
	}
	if line["status"] != float64(http.StatusTeapot) || line["method"] != "GET" || line["host"] != r.Host {
		t.Errorf("line %v", line)
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n != 1 || out.Len() > 1000 || strings.ContainsAny(out.String(), "\x1b") {
		t.Errorf("a request of 8 KiB with control characters makes %d lines, %d bytes", n, out.Len())
	}
	if strings.Contains(out.String(), "secret") {
		t.Errorf("the line tells a secret: %s", &out)
	}

	out.Reset()
	for range 1000 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); n > 400 { // two seconds' worth, on a slow machine
		t.Errorf("%d lines for 1000 requests: it is not sampled", n)
	}
}

// Anyone who names a file or sends a request writes into the log, and must not write on the terminal that shows it.
func TestLogIsSafeForATerminal(t *testing.T) {
	for _, format := range []string{"json", "console"} {
		var out bytes.Buffer
		log, err := newLogger(logConfig{Level: "info", Format: format}, &out)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("key set rejected", zap.String("key_set", "a\u202eb\u2066c\u009bd\u3164e"))
		if strings.ContainsAny(out.String(), "\u202e\u2066\u009b\u3164") || !strings.Contains(out.String(), `a\u202eb`) {
			t.Errorf("%s: %q", format, &out)
		}
		if format == "console" && !strings.Contains(out.String(), "info\tkey set rejected\t{") {
			t.Errorf("the columns are lost: %q", &out)
		}
	}
}
