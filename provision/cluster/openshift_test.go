package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/internal/signingkey"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/rotation"
)

// secrets stands for the Secrets of one namespace of a kube-apiserver: optimistic concurrency by resourceVersion, and
// nothing else of it. The end-to-end tests use a real one.
type secrets struct {
	mu      sync.Mutex
	objects map[string]map[string]any
	version int
	forbid  string            // METHOD NAME that is answered with 403
	before  func(call string) // is called before a write takes effect; may be nil
	log     []string
}

func (s *secrets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if before := s.before; before != nil && r.Method != http.MethodGet {
		s.before = nil
		before(r.Method)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, secretsPath), "/")
	body := map[string]any{}
	if data, _ := io.ReadAll(r.Body); len(data) > 0 {
		_ = json.Unmarshal(data, &body)
	}
	if r.Method == http.MethodPost {
		name, _ = body["metadata"].(map[string]any)["name"].(string)
	}
	have, there := s.objects[name]
	fail := func(code int) {
		w.WriteHeader(code)
		writeJSON(w, map[string]any{"kind": "Status", "message": fmt.Sprintf("secrets %q: %d", name, code)})
	}
	if r.Method != http.MethodGet {
		s.log = append(s.log, r.Method+" "+name)
	}
	switch {
	case s.forbid == r.Method+" "+name:
		fail(http.StatusForbidden)
	case r.Method == http.MethodPost && there:
		fail(http.StatusConflict)
	case r.Method != http.MethodPost && !there:
		fail(http.StatusNotFound)
	case r.Method == http.MethodPut && body["metadata"].(map[string]any)["resourceVersion"] != have["metadata"].(map[string]any)["resourceVersion"]:
		fail(http.StatusConflict)
	case r.Method == http.MethodGet:
		writeJSON(w, have)
	case r.Method == http.MethodDelete && body["preconditions"].(map[string]any)["resourceVersion"] != have["metadata"].(map[string]any)["resourceVersion"]:
		fail(http.StatusConflict)
	case r.Method == http.MethodDelete:
		delete(s.objects, name)
		writeJSON(w, map[string]any{"kind": "Status"})
	default:
		s.version++
		body["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(s.version)
		s.objects[name] = body
		writeJSON(w, body)
	}
}

// has returns the kid of the pair in a Secret; empty for none.
func (s *secrets) has(name string) keystore.KeyID {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw, _ := json.Marshal(s.objects[name])
	var one secret
	_ = json.Unmarshal(raw, &one)
	k, _, _ := one.pair()
	return k.ID()
}

func newOpenShift(t *testing.T) (OpenShift, *secrets) {
	t.Helper()
	s := &secrets{objects: map[string]map[string]any{}}
	replace := map[string]http.HandlerFunc{secretsPath: s.ServeHTTP}
	for _, name := range []string{operatorPair, nextPair, previousPair} {
		replace[secretPath(name)] = s.ServeHTTP
	}
	return OpenShift{Signing{newPlane(t, []string{"https://old.example.com"}, replace).access}}, s
}

// operatorHas puts a pair where the operator keeps the one that it signs with, with a label of its own.
func (s *secrets) operatorHas(t *testing.T) keystore.Key {
	t.Helper()
	pair, err := signingkey.Generate(signingkey.P256)
	check(t, err)
	data, err := pair.SecretData()
	check(t, err)
	s.objects[operatorPair] = map[string]any{"type": "Other", "metadata": map[string]any{"name": operatorPair, "resourceVersion": "0", "labels": map[string]any{"its": "own"}}, "data": data}
	return keystore.Key{VerificationKey: pair.Public(), State: keystore.Active}
}

func TestOpenShiftRotatesThereAndBack(t *testing.T) {
	o, s := newOpenShift(t)
	old := s.operatorHas(t)
	whatever := func(keystore.VerificationKey) bool { return true }
	k, err := o.NextKey(t.Context(), whatever)
	check(t, err)
	again, err := o.NextKey(t.Context(), whatever)
	check(t, err)
	if !again.Equal(k) || s.has(nextPair) != k.ID() || s.has(operatorPair) != old.ID() {
		t.Fatalf("made %s, then %s; next has %s, the operator %s", k.ID(), again.ID(), s.has(nextPair), s.has(operatorPair))
	}
	fresh := keystore.Key{VerificationKey: k, State: keystore.Active}
	where := func() [3]keystore.KeyID {
		return [3]keystore.KeyID{s.has(operatorPair), s.has(nextPair), s.has(previousPair)}
	}
	for i, step := range []struct {
		stage keystore.Key
		want  [3]keystore.KeyID
	}{
		{fresh, [3]keystore.KeyID{k.ID(), k.ID(), old.ID()}},
		{fresh, [3]keystore.KeyID{k.ID(), "", old.ID()}}, // ours is dropped once the operator has it
		{fresh, [3]keystore.KeyID{k.ID(), "", old.ID()}},
		{old, [3]keystore.KeyID{old.ID(), k.ID(), old.ID()}},
		{old, [3]keystore.KeyID{old.ID(), k.ID(), old.ID()}},
		{fresh, [3]keystore.KeyID{k.ID(), k.ID(), old.ID()}},
	} {
		check(t, o.Stage(t.Context(), step.stage))
		if got := where(); got != step.want {
			t.Fatalf("step %d: operator, next and previous have %v; want %v", i, got, step.want)
		}
	}
	if s.objects[operatorPair]["type"] != "Other" || s.objects[operatorPair]["metadata"].(map[string]any)["labels"] == nil {
		t.Errorf("the operator's Secret lost what is not ours: %v", s.objects[operatorPair]["metadata"])
	}
	for _, call := range s.log {
		if strings.HasPrefix(call, "DELETE") && call != "DELETE "+nextPair {
			t.Errorf("%s", call)
		}
	}
}

// A key that was used before, or is gone, is not taken again.
func TestOpenShiftMakesAnotherKey(t *testing.T) {
	o, s := newOpenShift(t)
	first, err := o.NextKey(t.Context(), func(keystore.VerificationKey) bool { return true })
	check(t, err)
	second, err := o.NextKey(t.Context(), func(keystore.VerificationKey) bool { return false })
	check(t, err)
	if second.Equal(first) || s.has(nextPair) != second.ID() {
		t.Errorf("made %s, then %s; next has %s", first.ID(), second.ID(), s.has(nextPair))
	}
}

func TestOpenShiftRefusals(t *testing.T) {
	o, s := newOpenShift(t)
	old := s.operatorHas(t)
	pair, err := signingkey.Generate(signingkey.P256)
	check(t, err)
	elsewhere := keystore.Key{VerificationKey: pair.Public(), State: keystore.Active}
	var byHand *rotation.ByHandError
	if err := o.Stage(t.Context(), elsewhere); !errors.As(err, &byHand) || !strings.Contains(byHand.Do, string(elsewhere.ID())) || len(s.log) != 0 {
		t.Errorf("a key that is not in the cluster: %v; calls %v", err, s.log)
	}
	k, err := o.NextKey(t.Context(), func(keystore.VerificationKey) bool { return true })
	check(t, err)
	s.forbid = "POST " + previousPair
	fresh := keystore.Key{VerificationKey: k, State: keystore.Active, PromotedAt: time.Now()}
	if err := o.Stage(t.Context(), fresh); err == nil || !strings.Contains(err.Error(), "write Secret openshift-kube-apiserver-operator/"+previousPair) || s.has(operatorPair) != old.ID() {
		t.Errorf("the old pair cannot be kept: %v; the operator has %s", err, s.has(operatorPair))
	}
	s.forbid = "GET " + operatorPair
	if err := o.Stage(t.Context(), fresh); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("it may not be read: %v", err)
	}
	for _, err := range []error{o.Stage(t.Context(), fresh)} {
		if strings.Contains(err.Error(), "PRIVATE") || strings.Contains(err.Error(), "LS0t") {
			t.Error("an error quotes a key")
		}
	}
}

// Between the look at our copy and its deletion, another operator goes back, and needs it.
func TestOpenShiftDeletesOnlyWhatItHasRead(t *testing.T) {
	o, s := newOpenShift(t)
	old := s.operatorHas(t)
	k, err := o.NextKey(t.Context(), func(keystore.VerificationKey) bool { return true })
	check(t, err)
	fresh := keystore.Key{VerificationKey: k, State: keystore.Active}
	check(t, o.Stage(t.Context(), fresh))
	s.before = func(call string) {
		if call == http.MethodDelete {
			check(t, o.Stage(t.Context(), old))
		}
	}
	check(t, o.Stage(t.Context(), fresh))
	if s.has(operatorPair) != old.ID() || s.has(nextPair) != k.ID() {
		t.Errorf("the operator has %s, next %s", s.has(operatorPair), s.has(nextPair))
	}
}

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
