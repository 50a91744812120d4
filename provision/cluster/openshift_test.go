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
