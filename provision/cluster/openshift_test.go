package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/keypost/keypost/internal/signingkey"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/rotation"
	"github.com/keypost/keypost/keystore/storetest"
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

// A key whose pair is not in the cluster is staged by hand.
func TestOpenShiftStagesNoPairFromElsewhere(t *testing.T) {
	o, s := newOpenShift(t)
	s.operatorHas(t)
	pair, err := signingkey.Generate(signingkey.P256)
	check(t, err)
	elsewhere := keystore.Key{VerificationKey: pair.Public(), State: keystore.Active}
	var byHand *rotation.ByHandError
	if err := o.Stage(t.Context(), elsewhere); !errors.As(err, &byHand) || !strings.Contains(byHand.Do, string(elsewhere.ID())) || len(s.log) != 0 {
		t.Errorf("%v; calls %v", err, s.log)
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
			if quoted := fmt.Sprint(err); strings.Contains(quoted, "PRIVATE") || strings.Contains(quoted, "LS0t") {
				t.Errorf("%s, %s refused: the error quotes a key", name, call)
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

// What the operator has is kept before another pair takes its place, if there is a private key in it, whatever that is. A private key
// with two public ones is not the pair of either.
func TestOpenShiftKeepsWhatHasAPrivateKey(t *testing.T) {
	type pair = map[string][]byte
	const private, public = signingkey.SecretPrivate, signingkey.SecretPublic
	for name, tt := range map[string]struct {
		had  func(next pair) any
		kept bool
	}{
		"no Secret":            {nil, false},
		"no pair":              {func(pair) any { return pair{} }, false},
		"another form":         {func(pair) any { return "x" }, false},
		"an empty private key": {func(p pair) any { return pair{private: {}, public: p[public]} }, false},
		"only a private key":   {func(pair) any { return pair{private: []byte("x")} }, true},
		"no PEM":               {func(p pair) any { return pair{private: p[private], public: []byte("x")} }, true},
		"two public keys": {func(p pair) any {
			return pair{private: p[private], public: append(p[public], storetest.Key(t).PEM()...)}
		}, true},
	} {
		o, s := newOpenShift(t)
		k, err := o.NextKey(t.Context(), func(keystore.VerificationKey) bool { return true })
		check(t, err)
		if tt.had != nil {
			var next struct{ Data pair }
			raw, err := json.Marshal(s.objects[nextPair])
			check(t, errors.Join(err, json.Unmarshal(raw, &next)))
			s.objects[operatorPair] = map[string]any{"type": "Other", "metadata": map[string]any{"name": operatorPair, "resourceVersion": "0"}, "data": tt.had(next.Data)}
		}
		check(t, o.Stage(t.Context(), keystore.Key{VerificationKey: k, State: keystore.Active}))
		if _, kept := s.objects[previousPair]; kept != tt.kept || s.has(operatorPair) != k.ID() {
			t.Errorf("%s: kept %t, the operator has %s", name, kept, s.has(operatorPair))
		}
	}
}

func TestSigning(t *testing.T) {
	issuers := []string{"https://new.example.com", "https://old.example.com"}
	p := newPlane(t, issuers, nil)
	for i := range p.signs {
		p.signs[i].kid = "kid-of-" + issuers[i]
	}
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
