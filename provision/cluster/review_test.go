package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
)

// What is in front of an API server may send back what it was sent. No part of the token is ever shown.
func TestReviewsNeverShowTheToken(t *testing.T) {
	type m = map[string]any
	parts := func(r *http.Request) (token string, part []string) {
		var request struct{ Spec struct{ Token string } }
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		return request.Spec.Token, strings.Split(request.Spec.Token, ".")
	}
	status := func(w http.ResponseWriter, code int, message string) {
		w.WriteHeader(code)
		writeJSON(w, map[string]any{"kind": "Status", "message": message})
	}
	for name, echo := range map[string]http.HandlerFunc{
		"a 400 with it": func(w http.ResponseWriter, r *http.Request) {
			token, _ := parts(r)
			status(w, 400, "bad request: "+token)
		},
		"a 400 cut short": func(w http.ResponseWriter, r *http.Request) {
			token, _ := parts(r)
			status(w, 400, strings.Repeat("x", 450)+token)
		},
		"a 403 with it": func(w http.ResponseWriter, r *http.Request) {
			token, _ := parts(r)
			status(w, 403, fmt.Sprintf("User %q may not", token))
		},
		"as the user": func(w http.ResponseWriter, r *http.Request) {
			token, _ := parts(r)
			writeJSON(w, m{"status": m{"authenticated": true, "user": m{"username": token}}})
		},
		"its second half": func(w http.ResponseWriter, r *http.Request) {
			_, p := parts(r)
			writeJSON(w, m{"status": m{"error": p[1] + "." + p[2]}})
		},
		"its signature": func(w http.ResponseWriter, r *http.Request) {
			_, p := parts(r)
			writeJSON(w, m{"status": m{"error": "bad " + p[2]}})
		},
		"a part of the one": func(w http.ResponseWriter, r *http.Request) {
			_, p := parts(r)
			writeJSON(w, m{"status": m{"error": p[1][:40]}})
		},
	} {
		s := newStandIn(t, 1)
		s.shows(t, "https://other.example.com", "https://other.example.com")
		s.replace[reviewPath] = echo
		found, err := Verify(t.Context(), s.start(t), s.want)
		check(t, err)
		text, err := json.Marshal(found)
		check(t, err)
		for _, part := range strings.Split(s.want.Token, ".") {
			if strings.Contains(string(text), part[:20]) {
				t.Errorf("%s: %s", name, text)
			}
		}
		if !strings.Contains(string(text), "repeats the credential") && name != "a 403 with it" {
			t.Errorf("%s: nothing says that a text is not shown: %s", name, text)
		}
	}
}

// Where neither a token nor the flags of a kube-apiserver show it, the check of audiences does not claim that none is missing.
func TestAudiencesOfOlderTokensNotLookedAt(t *testing.T) {
	s := newStandIn(t, 1)
	got, err := Verify(t.Context(), s.start(t), s.want)
	check(t, err)
	i := slices.IndexFunc(got, func(f finding.Finding) bool { return f.Check == "cluster-audiences" })
	if i < 0 || !strings.Contains(got[i].Evidence, "older tokens is missing was not looked at") {
		t.Errorf("%+v", got)
	}
}
