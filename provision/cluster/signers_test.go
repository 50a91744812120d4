package cluster

import (
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

const signature = "c2VjcmV0LXNpZ25hdHVyZQ"

func fakeToken(header, claims string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "." + signature
}

func TestSignersAsksEveryServerAtItsOwnAddress(t *testing.T) {
	issuers := []string{"https://new.example.com", "https://old.example.com", "https://new.example.com"}
	p := newPlane(t, issuers, nil)
	for i := range p.signs {
		p.signs[i].kid = "kid-of-" + issuers[i]
	}
	got, err := Signers(t.Context(), p.access, 0, "openshift")
	check(t, err)
	want := map[string]string{}
	for i, s := range p.servers {
		want[strings.TrimPrefix(s.URL, "https://")] = issuers[i]
	}
	for _, s := range got {
		if s.Issuer != want[s.Address] || string(s.KeyID) != "kid-of-"+s.Issuer || s.Lifetime != 10*time.Minute {
			t.Errorf("signer %+v, want the issuer %s", s, want[s.Address])
		}
	}
	if len(got) != len(issuers) {
		t.Errorf("%d signers, want %d: %v", len(got), len(issuers), got)
	}
	for _, name := range p.names {
		if name != "example.com" {
			t.Errorf("TLS server name %q, want the kubeconfig's example.com", name)
		}
	}
	for _, body := range p.asked {
		if !strings.Contains(body, `"audiences":["openshift"]`) || !strings.Contains(body, `"expirationSeconds":600`) {
			t.Errorf("asked for %s", body)
		}
	}
}

// Each server is asked for the keys that it lists. One that does not answer hides none of the others.
func TestLists(t *testing.T) {
	listed, other := storetest.Key(t), storetest.Key(t)
	asked := 0
	p := newPlane(t, []string{"https://a.example.com", "https://b.example.com", "https://c.example.com"}, map[string]http.HandlerFunc{jwksPath: func(w http.ResponseWriter, _ *http.Request) {
		asked++
		if asked == 2 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		writeJSON(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: listed.Key(), KeyID: string(listed.ID()), Algorithm: listed.Alg(), Use: "sig"}}})
	}})
	for k, want := range map[keystore.VerificationKey]bool{listed: true, other: false} {
		asked = 0
		got, err := Signing{p.access}.Lists(t.Context(), k)
		if err == nil || !strings.Contains(err.Error(), "500") || len(got) != 2 {
			t.Errorf("%v, %v", got, err)
		}
		for server, lists := range got {
			if lists != want {
				t.Errorf("%s lists it: %t, want %t", server, lists, want)
			}
		}
	}
}

func TestSignersRefuses(t *testing.T) {
	answer := func(code int, v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			writeJSON(w, v)
		}
	}
	at := func(path string, h http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{path: h}
	}
	type m = map[string]any
	for _, tt := range []struct {
		name    string
		access  Access
		replace map[string]http.HandlerFunc
		want    string
	}{
		{"credentials refused", Access{Context: "bad"}, nil, "does not accept the credentials"},
		{"listing forbidden", Access{}, at(slicesPath, answer(403, m{"kind": "Status", "message": `user "x" cannot list`})), `list the kube-apiservers (EndpointSlices of the service default/kubernetes): the cluster answers 403: user "x" cannot list`},
		{"no endpoints", Access{}, at(slicesPath, answer(200, m{"items": []m{}})), "nobody knows how many there are"},
		{"minting forbidden", Access{}, at(tokenPath, answer(403, m{"kind": "Status", "message": "no"})), "mint a token (each is asked at its own address): the cluster answers 403: no"},
		{"no such account", Access{ServiceAccount: "ns/absent"}, nil, "answers 404: not found here"},
		{"account mistyped", Access{ServiceAccount: "absent"}, nil, "NAMESPACE/NAME"},
		{"an account without its namespace", Access{ServiceAccount: "/x"}, nil, "NAMESPACE/NAME"},
		{"an account without its name", Access{ServiceAccount: "ns/"}, nil, "NAMESPACE/NAME"},
		{"an account of three parts", Access{ServiceAccount: "ns/x/y"}, nil, "NAMESPACE/NAME"},
		{"expired when it is issued", Access{}, at(tokenPath, answer(201, tokenReply(fakeToken(`{"kid":"k"}`, `{"iss":"https://x","iat":2,"exp":2}`)))), "does not have all of kid, iss, iat and exp"},
		{"a server is gone", Access{}, at(slicesPath, answer(200, m{"items": []m{{"endpoints": []m{{"addresses": []string{"127.0.0.1"}}}, "ports": []m{{"port": 1}}}}})), "have the kube-apiserver at 127.0.0.1:1 mint a token"},
		{"no Status in the refusal", Access{}, at(tokenPath, answer(502, "<html>")), "the cluster answers 502"},
		{"no token", Access{}, at(tokenPath, answer(201, tokenReply(""))), "not a service account token"},
		{"no JSON", Access{}, at(tokenPath, answer(201, "x")), "not the JSON that was asked for"},
		{"not base64url", Access{}, at(tokenPath, answer(201, tokenReply("a.?."+signature))), "not a service account token"},
		{"without kid", Access{}, at(tokenPath, answer(201, tokenReply(fakeToken(`{}`, `{"iss":"https://x","iat":1,"exp":2}`)))), "does not have all of kid, iss, iat and exp"},
		{"without iss", Access{}, at(tokenPath, answer(201, tokenReply(fakeToken(`{"kid":"k"}`, `{"iat":1,"exp":2}`)))), "does not have all of kid, iss, iat and exp"},
		{"without exp", Access{}, at(tokenPath, answer(201, tokenReply(fakeToken(`{"kid":"k"}`, `{"iss":"https://x","iat":1}`)))), "does not have all of kid, iss, iat and exp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlane(t, []string{"https://a.example.com"}, tt.replace)
			tt.access.Kubeconfig = p.access.Kubeconfig
			got, err := Signers(t.Context(), tt.access, 0, "openshift")
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Signers: %v, %v, want %q", got, err, tt.want)
			}
			if strings.Contains(err.Error(), signature) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error with a token or a line break: %q", err)
			}
		})
	}
}

// A server that is reached elsewhere is asked there, and is known by the address that is listed.
func TestSignersThroughTunnels(t *testing.T) {
	p := newPlane(t, []string{"https://a", "https://b"}, nil)
	listed := []string{p.servers[0].Listener.Addr().String(), p.servers[1].Listener.Addr().String()}
	slices.Sort(listed)
	tunnel, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = tunnel.Close() })
	var through atomic.Int32
	go func() {
		for {
			in, err := tunnel.Accept()
			if err != nil {
				return
			}
			through.Add(1)
			out, err := net.Dial("tcp", listed[1])
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(out, in) }()
			go func() { _, _ = io.Copy(in, out) }()
		}
	}()
	end := tunnel.Addr().String()
	p.access.Reach = map[string]string{listed[1]: end}
	got, err := Signers(t.Context(), p.access, 0, "openshift")
	if err != nil || len(got) != 2 || got[1].Address != listed[1] || through.Load() == 0 {
		t.Errorf("Signers = %+v, %v, %d connections through the tunnel", got, err, through.Load())
	}
	for name, reach := range map[string]map[string]string{
		"as the cluster lists it": {"192.0.2.1:6443": end},
		"that is where":           {listed[0]: end, listed[1]: end},
		"behind one address ":     {listed[0]: listed[1]},
	} {
		p.access.Reach = reach
		if _, err := Signers(t.Context(), p.access, 0, "openshift"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v, want %q", reach, err, name)
		}
	}
}
