package keystore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/gate"
)

func TestNewRefuses(t *testing.T) {
	good := Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com"), Keys: []VerificationKey{testKey(0)}}
	for name, tt := range map[string]struct {
		spoil func(*Spec)
		want  string
	}{
		"a bad name":         {func(s *Spec) { s.Name = "Prod" }, "is not a key set name"},
		"no issuer":          {func(s *Spec) { s.Issuers = nil }, "it has no issuer URL"},
		"an empty issuer":    {func(s *Spec) { s.Issuers = []IssuerURL{{}} }, "it must begin with https://"},
		"a dev issuer":       {func(s *Spec) { s.Issuers = urls("https://oidc.example.com:8443") }, "it has a port"},
		"a dev host":         {func(s *Spec) { s.Issuers = urls("https://localhost") }, "must be a public DNS name"},
		"no key":             {func(s *Spec) { s.Keys = nil }, "no key was given"},
		"an empty key":       {func(s *Spec) { s.Keys = []VerificationKey{{}} }, "its key 1 is empty"},
		"a key twice":        {func(s *Spec) { s.Keys = []VerificationKey{testKey(0), testKey(0)} }, "two of its keys have the kid"},
		"a gone key":         {func(s *Spec) { s.Gone = []Gone{goneLine(Key{VerificationKey: testKey(0)}, t0, Revoked)} }, "a key that is gone never comes back"},
		"an unsound policy":  {func(s *Spec) { s.Policy.MaxAge = DurationPtr(time.Second) }, "policy: maxAge is 1s"},
		"a negative policy":  {func(s *Spec) { s.Policy.TokenLifetime = DurationPtr(-time.Hour) }, "policy: tokenLifetime is -1h"},
		"an unsound gone at": {func(s *Spec) { s.Gone = []Gone{{ID: "x", Why: Revoked}} }, "its gone line for \"x\""},
	} {
		spec := good
		tt.spoil(&spec)
		if _, err := New(change(t0), spec); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v; want %q", name, err, tt.want)
		}
	}
	if _, err := New(Change{}, good); err == nil {
		t.Error("a change without a time is accepted")
	}
}

func TestWithdrawAndReopen(t *testing.T) {
	ok := step(t)
	s := lives(t)["removed"]
	_, err := s.Withdraw(change(openDay))
	var notYet *NotYetError
	if !errors.As(err, &notYet) || notYet.Gate != gate.GateActiveKeys || !strings.Contains(err.Error(), "key "+string(testKey(0).ID())+" is active") {
		t.Fatalf("withdraw with an active key: error %v", err)
	}
	if _, err := s.Reopen(because(openDay, "x"), Spec{}); err == nil || !strings.Contains(err.Error(), "exists and is in use") {
		t.Errorf("reopen of a key set in use: error %v", err)
	}
	s = ok(s.Retire(change(openDay), testKey(0).ID(), Evidence{Statement: "the cluster is gone"}))
	s = ok(s.Withdraw(because(openDay, "the cluster is gone")))
	if !s.Withdrawn() || !s.WithdrawnAt().Equal(openDay) || len(s.Keys()) != 1 {
		t.Errorf("withdrawn %v at %v with %d keys", s.Withdrawn(), s.WithdrawnAt(), len(s.Keys()))
	}
	for name, do := range map[string]func() (KeySet, error){
		"withdraw":   func() (KeySet, error) { return s.Withdraw(change(openDay)) },
		"set policy": func() (KeySet, error) { return s.SetPolicy(change(openDay), Policy{TokenLifetime: DurationPtr(0)}) },
	} {
		if _, err := do(); err == nil || !strings.Contains(err.Error(), "was withdrawn at") {
			t.Errorf("%s of a withdrawn key set: error %v", name, err)
		}
	}

	s.labels, s.unknown = map[string]string{"team": "a"}, []string{"colour"}
	spec := Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com/prod-a"), Keys: []VerificationKey{testKey(2)}}
	if _, err := s.Reopen(change(openDay), spec); err == nil || !strings.Contains(err.Error(), "a reason is needed; it is recorded") {
		t.Errorf("reopen without a reason: error %v", err)
	}
	if _, err := s.Reopen(because(t0, "x"), spec); !errors.As(err, &notYet) || notYet.Gate != gate.GateClock {
		t.Errorf("reopen before it was withdrawn: error %v", err)
	}
	for _, old := range []VerificationKey{testKey(0), subject} {
		again := spec
		again.Keys = []VerificationKey{testKey(2), old}
		if _, err := s.Reopen(because(openDay, "x"), again); !errors.Is(err, ErrGoneReturned) {
			t.Errorf("reopen with a key from before: error %v", err)
		}
	}
	got := ok(s.Reopen(because(openDay, "a new cluster"), spec))
	want := []Gone{s.Gone()[0], {ID: testKey(0).ID(), Fingerprint: testKey(0).Fingerprint(), At: openDay, Why: Removed,
		PublishedAt: t0, PromotedAt: t0, RetiredAt: s.Keys()[0].RetiredAt}}
	if !slices.Equal(got.Gone(), want) || got.Withdrawn() || !slices.Equal(ids(got), []KeyID{testKey(2).ID()}) {
		t.Errorf("gone %v, keys %v", got.Gone(), ids(got))
	}
	if h := got.History(); len(h) != len(s.History())+1 || h[len(h)-1].Why != "a new cluster" || got.labels["team"] != "a" || len(got.Unknown()) != 1 {
		t.Errorf("it does not carry on: history %d lines, labels %v, unknown %v", len(h), got.labels, got.Unknown())
	}
}

func TestAccept(t *testing.T) {
	s := lives(t)["removed"] // published: key 0; gone: the subject
	k0, k2, lost := testKey(0), testKey(2), testKey(3)
	c := because(openDay, "a backup was restored")
	for _, tt := range []struct {
		name      string
		decided   Decided
		published []KeyID
		gone      []KeyID
		refused   string
	}{
		{name: "as it is", published: []KeyID{k0.ID()}, gone: []KeyID{subject.ID()}},
		{name: "a missing key is kept", decided: Decided{Keep: []VerificationKey{k2}}, published: []KeyID{k0.ID(), k2.ID()}, gone: []KeyID{subject.ID()}},
		{name: "a missing key is gone", decided: Decided{Gone: []Gone{buried(lost, Removed)}}, published: []KeyID{k0.ID()}, gone: []KeyID{subject.ID(), lost.ID()}},
		{name: "a key that came back goes", decided: Decided{Keep: []VerificationKey{k2}, Gone: []Gone{buried(k0, Removed)}}, published: []KeyID{k2.ID()}, gone: []KeyID{subject.ID(), k0.ID()}},
		{name: "what is so already", decided: Decided{Keep: []VerificationKey{k0}, Gone: []Gone{buried(subject, Removed)}}, published: []KeyID{k0.ID()}, gone: []KeyID{subject.ID()}},
		{name: "a gone key cannot be kept", decided: Decided{Keep: []VerificationKey{subject}}, refused: "is gone and never comes back"},
		{name: "another key of a stored kid goes, and the stored one too", decided: Decided{Gone: []Gone{buried(must(k2.WithID(k0.ID(), "")), Removed)}}, refused: "it would leave \"prod-a\" without a key"},
		{name: "no key at all", decided: Decided{Keep: []VerificationKey{{}}}, refused: "a decision names no key"},
		{name: "no key is left", decided: Decided{Gone: []Gone{buried(k0, Removed)}}, refused: "it would leave \"prod-a\" without a key"},
	} {
		got, err := s.Accept(c, 17, tt.decided)
		if tt.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%s: error %v; want %q", tt.name, err, tt.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var gone []KeyID
		for _, g := range got.Gone() {
			gone = append(gone, g.ID)
		}
		slices.Sort(tt.published)
		if !slices.Equal(ids(got), tt.published) || !slices.Equal(gone, tt.gone) {
			t.Errorf("%s: published %v, gone %v", tt.name, ids(got), gone)
		}
	}
	if _, err := s.Accept(change(openDay), 17, Decided{}); err == nil || !strings.Contains(err.Error(), "a reason is needed; it is recorded") {
		t.Errorf("accept without a reason: error %v", err)
	}
}
