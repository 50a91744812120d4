package arm

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) Do(r *http.Request) (*http.Response, error) { return f(r) }

// The caller's token goes to Azure Resource Manager, and to nobody else.
func TestTheTokenGoesToAzureAlone(t *testing.T) {
	t.Parallel()
	for address, goes := range map[string]bool{
		"https://management.azure.com/subscriptions":              true,
		"https://Management.Azure.com:443/subscriptions":          true, // as in some nextLinks of Azure's
		"http://management.azure.com/subscriptions":               false,
		"https://management.azure.com:8443/subscriptions":         false,
		"https://management.azure.com.evil.example/subscriptions": false,
		"https://eastus.management.azure.com/subscriptions":       false,
		"https://management.azure.com@evil.example/subscriptions": false,
		"https://evil.example/?https://management.azure.com":      false,
	} {
		sent := 0
		g := guarded{transportFunc(func(*http.Request) (*http.Response, error) {
			sent++
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}), "management.azure.com"}
		for _, token := range []string{"Bearer x", ""} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				req.Header.Set("Authorization", token)
			}
			before := sent
			resp, err := g.Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			if want := goes || token == ""; (err == nil) != want || (sent > before) != want {
				t.Errorf("%s with %q: sent %v, %v", address, token, sent > before, err)
			}
			if err != nil && (!errors.Is(err, errElsewhere) || strings.Contains(err.Error(), token)) {
				t.Errorf("%s: %v", address, err)
			}
		}
	}
}

// No redirect is followed, with a token or without.
func TestNoRedirectIsFollowed(t *testing.T) {
	t.Parallel()
	followed := false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/there" {
			followed = true
			return
		}
		http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := usualTransport().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if followed || resp.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("followed: %v, %s", followed, resp.Status)
	}
}
