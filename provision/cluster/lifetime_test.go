package cluster

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/rotation"
)

// podJSON is a pod with a projected token volume per pair of audience and expirationSeconds ("" leaves it out).
func podJSON(name string, tokens ...[2]string) string {
	var sources []string
	for _, t := range tokens {
		seconds := ""
		if t[1] != "" {
			seconds = `,"expirationSeconds":` + t[1]
		}
		sources = append(sources, `{"configMap":{"name":"ca"}},{"serviceAccountToken":{"path":"token","audience":"`+t[0]+`"`+seconds+`}}`)
	}
	return `{"metadata":{"namespace":"ns","name":"` + name + `"},"spec":{"volumes":[{"name":"x","emptyDir":{}},{"name":"t","projected":{"sources":[` + strings.Join(sources, ",") + `]}}]}}`
}

func TestTokenLifetimeIsTheLongestThatPodsAskFor(t *testing.T) {
	pages := map[string]string{
		"":   `{"metadata":{"continue":"2&"},"items":[` + podJSON("a", [2]string{"openshift", "3600"}) + `,` + podJSON("other", [2]string{"vault", "999999"}) + `]}`,
		"2&": `{"metadata":{"continue":"3"},"items":[` + podJSON("b", [2]string{"", "3607"}, [2]string{"sts.amazonaws.com", "86400"}) + `]}`,
		"3":  `{"metadata":{},"items":[` + podJSON("c", [2]string{"openshift", ""}) + `,{"metadata":{"name":"bare"}}]}`,
	}
	var asked []string
	p := newPlane(t, []string{"https://a.example.com"}, map[string]http.HandlerFunc{"/api/v1/pods": func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("limit"))
		_, _ = io.WriteString(w, pages[r.URL.Query().Get("continue")])
	}})
	for _, tt := range []struct {
		audiences []string
		want      Lifetime
	}{
		{[]string{"openshift", "sts.amazonaws.com"}, Lifetime{24 * time.Hour, "ns/b", 3}},
		{[]string{"openshift"}, Lifetime{time.Hour, "ns/a", 2}},
		{[]string{"nobody"}, Lifetime{}},
		// An audience of the cluster's own: what every pod is given by default, and for a year.
		{[]string{"openshift", "https://a.example.com"}, Lifetime{365 * 24 * time.Hour, "ns/b", 3}},
	} {
		got, err := TokenLifetime(t.Context(), p.access, tt.audiences)
		if err != nil || got != tt.want {
			t.Errorf("TokenLifetime(%q) = %+v, %v, want %+v", tt.audiences, got, err, tt.want)
		}
	}
	if want := fmt.Sprint([]int{500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500}); fmt.Sprint(asked) != want {
		t.Errorf("page sizes %v, want %v", asked, want)
	}
}

func TestTokenLifetimeOfHalfAListIsAnError(t *testing.T) {
	p := newPlane(t, []string{"https://a.example.com"}, map[string]http.HandlerFunc{"/api/v1/pods": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continue") != "" {
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"the provided continue parameter is too old"}`)
			return
		}
		_, _ = io.WriteString(w, `{"metadata":{"continue":"2"},"items":[`+podJSON("a", [2]string{"openshift", "600"})+`]}`)
	}})
	got, err := TokenLifetime(t.Context(), p.access, []string{"openshift"})
	if err == nil || got != (Lifetime{}) || !strings.Contains(err.Error(), "list the pods: the cluster answers 410: the provided continue parameter is too old") {
		t.Errorf("TokenLifetime = %+v, %v", got, err)
	}
}

func TestChosenIssuer(t *testing.T) {
	const group = "/apis/config.openshift.io/v1"
	body := func(code int, s string) map[string]http.HandlerFunc {
		there := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"kind":"APIResourceList"}`) }
		return map[string]http.HandlerFunc{group: there, group + "/authentications/cluster": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, s)
		}}
	}
	for _, tt := range []struct {
		name      string
		replace   map[string]http.HandlerFunc
		issuer    string
		openShift bool
		fails     string
	}{
		{"plain Kubernetes", nil, "", false, ""},
		{"OpenShift", body(200, `{"spec":{"serviceAccountIssuer":"https://oidc.example.com/a"}}`), "https://oidc.example.com/a", true, ""},
		{"OpenShift with its own issuer", body(200, `{"spec":{}}`), "", true, ""},
		{"OpenShift without the object", body(404, `{"kind":"Status","message":"absent"}`), "", false, "read OpenShift's authentication/cluster: the cluster answers 404: absent"},
		{"forbidden", body(403, `{"kind":"Status","message":"no"}`), "", false, "read OpenShift's authentication/cluster: the cluster answers 403: no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlane(t, []string{"https://a.example.com"}, tt.replace)
			issuer, openShift, err := ChosenIssuer(t.Context(), p.access)
			if (err == nil) != (tt.fails == "") || err != nil && err.Error() != tt.fails {
				t.Fatalf("error %v, want %q", err, tt.fails)
			}
			if issuer != tt.issuer || openShift != tt.openShift {
				t.Errorf("ChosenIssuer = %q, %t, want %q, %t", issuer, openShift, tt.issuer, tt.openShift)
			}
		})
	}
}

// TestLifetimeIsWhatTheServersGrant: a token for others than the cluster, as long as kube-apiserver lets it live.
func TestLifetimeIsWhatTheServersGrant(t *testing.T) {
	for _, tt := range []struct {
		name string
		pods string
		want rotation.Lifetime
	}{
		{"as asked for", podJSON("a", [2]string{"vault", "3600"}), rotation.Lifetime{Longest: time.Hour, For: "pod ns/a"}},
		{"shortened by the more generous of two servers", podJSON("a", [2]string{"vault", "999999"}), rotation.Lifetime{Longest: 24 * time.Hour, For: "pod ns/a"}},
		{"the cluster's own, for a year", podJSON("a", [2]string{"", "3607"}), rotation.Lifetime{}},
		{"the shortest", podJSON("a", [2]string{"vault", "600"}), rotation.Lifetime{Longest: 10 * time.Minute, For: "pod ns/a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlane(t, []string{"https://a.example.com", "https://b.example.com"}, map[string]http.HandlerFunc{"/api/v1/pods": func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"metadata":{},"items":[`+tt.pods+`]}`)
			}})
			for _, generous := range []string{"https://a.example.com", "https://b.example.com"} {
				for i := range p.signs {
					p.signs[i].longest = time.Hour
					if p.signs[i].issuer == generous {
						p.signs[i].longest = 24 * time.Hour
					}
				}
				if got, err := (Signing{p.access}).Lifetime(t.Context()); err != nil || got != tt.want {
					t.Errorf("Lifetime = %+v, %v, want %+v", got, err, tt.want)
				}
			}
		})
	}
}

// TestLifetimeOfTheClustersOwnTokens: where a cloud's audience is among the cluster's own, a token of every pod is good there, and for a
// year if it was asked for with 3607 seconds, which --service-account-max-token-expiration does not shorten
// (k8s.io/kubernetes pkg/registry/core/serviceaccount/storage/token.go).
func TestLifetimeOfTheClustersOwnTokens(t *testing.T) {
	const own, year = "https://iam.googleapis.com/projects/1", 365 * 24 * time.Hour
	for asked, longest := range map[[2]string]time.Duration{{"", "3607"}: year, {own, "3607"}: year, {"", "3608"}: time.Hour, {own, ""}: time.Hour, {"vault", "3607"}: time.Hour} {
		p := newPlane(t, []string{own}, map[string]http.HandlerFunc{"/api/v1/pods": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"metadata":{},"items":[`+podJSON("a", asked)+`]}`)
		}})
		p.signs[0].longest = time.Hour
		want := rotation.Lifetime{Longest: longest, For: "pod ns/a"}
		if got, err := (Signing{p.access}).Lifetime(t.Context()); err != nil || got != want {
			t.Errorf("%q: Lifetime = %+v, %v, want %+v", asked, got, err, want)
		}
	}
}
