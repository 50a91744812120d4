package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/internal/signingkey"
	"github.com/keypost/keypost/keystore"
)

// A pair is complete with a private key, whatever it is, and one public key.
func TestSecretOfAPair(t *testing.T) {
	pair, err := signingkey.Generate(signingkey.P256)
	check(t, err)
	whole, err := pair.SecretData()
	check(t, err)
	var data map[string][]byte
	check(t, json.Unmarshal(whole, &data))
	other, err := signingkey.Generate(signingkey.P256)
	check(t, err)
	otherData, err := other.SecretData()
	check(t, err)
	var second map[string][]byte
	check(t, json.Unmarshal(otherData, &second))
	private, public := data[signingkey.SecretPrivate], data[signingkey.SecretPublic]
	for name, tt := range map[string]struct {
		data            any
		private, public bool
	}{
		"nothing":         {nil, false, false},
		"no member":       {map[string][]byte{}, false, false},
		"whole":           {data, true, true},
		"any private key": {map[string][]byte{signingkey.SecretPrivate: []byte("x"), signingkey.SecretPublic: public}, true, true},
		"an empty one":    {map[string][]byte{signingkey.SecretPrivate: {}, signingkey.SecretPublic: public}, false, false},
		"only public":     {map[string][]byte{signingkey.SecretPublic: public}, false, false},
		"only private":    {map[string][]byte{signingkey.SecretPrivate: private}, true, false},
		"no PEM":          {map[string][]byte{signingkey.SecretPrivate: private, signingkey.SecretPublic: []byte("x")}, true, false},
		"two public keys": {map[string][]byte{signingkey.SecretPrivate: private, signingkey.SecretPublic: slices.Concat(public, second[signingkey.SecretPublic])}, true, false},
		"another form":    {"x", false, false},
		"half a form":     {map[string]any{signingkey.SecretPrivate: private, "x": 1}, false, false},
	} {
		raw, err := json.Marshal(tt.data)
		check(t, err)
		s := secret{"data": raw}
		k, known, private := s.pair()
		if private != tt.private || known != tt.public || known != k.Equal(pair.Public()) {
			t.Errorf("%s: private %t, public %t (%s)", name, private, known, k.ID())
		}
	}
}

// Whatever call is refused, the whole step is, the error names the Secret, and nothing signs with another key.
func TestOpenShiftStopsAtEveryRefusal(t *testing.T) {
	whatever := func(keystore.VerificationKey) bool { return true }
	for name, tt := range map[string]struct {
		calls []string // that the last step makes
		step  func(o OpenShift, old, fresh keystore.Key) error
		ready int // how often the new key is staged before
	}{
		"a next key": {[]string{"GET " + nextPair, "PUT " + nextPair}, func(o OpenShift, _, _ keystore.Key) error {
			_, err := o.NextKey(t.Context(), func(keystore.VerificationKey) bool { return false })
			return err
		}, 0},
		"stage": {[]string{"GET " + operatorPair, "GET " + nextPair, "GET " + previousPair, "POST " + previousPair, "PUT " + operatorPair}, func(o OpenShift, _, fresh keystore.Key) error {
			return o.Stage(t.Context(), fresh)
		}, 0},
		"drop": {[]string{"GET " + operatorPair, "GET " + nextPair, "DELETE " + nextPair}, func(o OpenShift, _, fresh keystore.Key) error {
			return o.Stage(t.Context(), fresh)
		}, 1},
		"back": {[]string{"GET " + operatorPair, "GET " + previousPair, "GET " + nextPair, "POST " + nextPair, "PUT " + operatorPair}, func(o OpenShift, old, _ keystore.Key) error {
			return o.Stage(t.Context(), old)
		}, 2},
	} {
		for _, call := range tt.calls {
			o, s := newOpenShift(t)
			old := s.operatorHas(t)
			k, err := o.NextKey(t.Context(), whatever)
			check(t, err)
			fresh := keystore.Key{VerificationKey: k, State: keystore.Active}
			for range tt.ready {
				check(t, o.Stage(t.Context(), fresh))
			}
			signs := s.has(operatorPair)
			s.forbid = call
			_, secretName, _ := strings.Cut(call, " ")
			err = tt.step(o, old, fresh)
			if err == nil || !strings.Contains(err.Error(), "403") || !strings.Contains(err.Error(), "Secret openshift-kube-apiserver-operator/"+secretName) {
				t.Errorf("%s, %s refused: %v", name, call, err)
			}
			if s.has(operatorPair) != signs {
				t.Errorf("%s, %s refused: the operator has %s, not %s", name, call, s.has(operatorPair), signs)
			}
		}
	}
}

func TestOpenShiftWithoutAKubeconfig(t *testing.T) {
	o := OpenShift{Signing{Access{Kubeconfig: filepath.Join(t.TempDir(), "missing")}}}
	if _, err := o.NextKey(t.Context(), func(keystore.VerificationKey) bool { return true }); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("NextKey: %v", err)
	}
	if err := o.Stage(t.Context(), keystore.Key{}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("Stage: %v", err)
	}
	if _, err := o.Signers(t.Context()); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("Signers: %v", err)
	}
	if _, _, err := ChosenIssuer(t.Context(), o.Access); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("ChosenIssuer: %v", err)
	}
	if _, err := TokenLifetime(t.Context(), o.Access, nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("TokenLifetime: %v", err)
	}
	if _, err := TokenLifetime(t.Context(), Access{ServiceAccount: "x"}, nil); err == nil || !strings.Contains(err.Error(), "NAMESPACE/NAME") {
		t.Errorf("TokenLifetime: %v", err)
	}
}

// A new Secret is a whole object. One that has gone when it is to be deleted is gone; one of unknown version stays.
func TestOpenShiftSecretsAreMadeAndDropped(t *testing.T) {
	o, s := newOpenShift(t)
	old := s.operatorHas(t)
	k, err := o.NextKey(t.Context(), func(keystore.VerificationKey) bool { return true })
	check(t, err)
	made := s.objects[nextPair]
	if got := fmt.Sprint(made["apiVersion"], made["kind"], made["type"], made["metadata"].(map[string]any)["namespace"]); got != "v1SecretOpaqueopenshift-kube-apiserver-operator" && got != "v1 Secret Opaque openshift-kube-apiserver-operator" {
		t.Errorf("made %v", got)
	}
	fresh := keystore.Key{VerificationKey: k, State: keystore.Active}
	check(t, o.Stage(t.Context(), fresh))
	s.before = func(string) { delete(s.objects, nextPair) }
	if err := o.Stage(t.Context(), fresh); err != nil || s.has(operatorPair) != k.ID() {
		t.Errorf("deleted by somebody else: %v", err)
	}
	check(t, o.Stage(t.Context(), old))
	check(t, o.Stage(t.Context(), fresh)) // from next to the operator again
	delete(s.objects[nextPair]["metadata"].(map[string]any), "resourceVersion")
	s.log = nil
	if err := o.Stage(t.Context(), fresh); err == nil || !strings.Contains(err.Error(), "it has no resourceVersion") || len(s.log) != 0 {
		t.Errorf("of unknown version: %v, calls %v", err, s.log)
	}
}

// Where the operator has no pair yet, there is nothing to keep.
func TestOpenShiftKeepsNoEmptyPair(t *testing.T) {
	for name, had := range map[string]map[string]any{
		"no Secret": nil,
		"no pair":   {"type": "Other", "metadata": map[string]any{"name": operatorPair, "resourceVersion": "0"}, "data": map[string][]byte{}},
	} {
		o, s := newOpenShift(t)
		if had != nil {
			s.objects[operatorPair] = had
		}
		k, err := o.NextKey(t.Context(), func(keystore.VerificationKey) bool { return true })
		check(t, err)
		check(t, o.Stage(t.Context(), keystore.Key{VerificationKey: k, State: keystore.Active}))
		if _, kept := s.objects[previousPair]; kept || s.has(operatorPair) != k.ID() {
			t.Errorf("%s: kept %t, the operator has %s", name, kept, s.has(operatorPair))
		}
	}
}

func TestSigning(t *testing.T) {
	issuers := []string{"https://new.example.com", "https://old.example.com"}
	p := newPlane(t, issuers, nil)
	got, err := Signing{p.access}.Signers(t.Context())
	check(t, err)
	for i, s := range p.servers {
		if kid := got[strings.TrimPrefix(s.URL, "https://")]; string(kid) != "kid-of-"+issuers[i] {
			t.Errorf("%s signs with %q", s.URL, kid)
		}
	}
	if len(got) != 2 || !strings.Contains(strings.Join(p.asked, ""), mintedFor) {
		t.Errorf("%v; asked for %v", got, p.asked)
	}
	refusing := newPlane(t, issuers, map[string]http.HandlerFunc{slicesPath: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }})
	if got, err := (Signing{refusing.access}).Signers(t.Context()); err == nil || got != nil {
		t.Errorf("nobody knows the servers: %v, %v", got, err)
	}
	silent := newPlane(t, issuers, map[string]http.HandlerFunc{tokenPath: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }})
	got, err = Signing{silent.access}.Signers(t.Context())
	if err == nil || len(got) != 2 {
		t.Errorf("both are there and do not answer: %v, %v", got, err)
	}
	for address, kid := range got {
		if kid != "" {
			t.Errorf("%s signs with %q", address, kid)
		}
	}
}
