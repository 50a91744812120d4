package keystore

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Minute: "1m", 10 * time.Minute: "10m", time.Hour: "1h", 20 * time.Hour: "20h", 24 * time.Hour: "24h",
		90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", 75 * time.Second: "1m15s", 1500 * time.Millisecond: "1.5s", 100 * time.Hour: "100h",
	} {
		if got := Duration(d).String(); got != want {
			t.Errorf("%v is printed as %s; want %s", d, got, want)
		}
		var back Duration
		if err := json.Unmarshal(must(json.Marshal(Duration(d))), &back); err != nil || time.Duration(back) != d {
			t.Errorf("%s reads back as %v, error %v", want, back, err)
		}
	}
	for _, bad := range []string{`300`, `"300"`, `""`, `"-5m"`, `"5 m"`, `"five"`, `true`, `{}`, `"5m` + strings.Repeat("0", 1000) + `x"`} {
		var d Duration
		if err := json.Unmarshal([]byte(bad), &d); err == nil || !strings.Contains(err.Error(), "such as 5m") || len(err.Error()) > 200 {
			t.Errorf("%.40s: %v, error %v", bad, d, err)
		}
	}
}

func TestPolicyBounds(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name string
		p    Policy
		dev  bool
		want string // in the refusal; empty when it is sound
	}{
		{name: "nothing declared"},
		{name: "everything at its least", p: Policy{MaxAge: DurationPtr(time.Minute), StaleWhileRevalidate: DurationPtr(0), StaleIfError: DurationPtr(0), EdgeHold: DurationPtr(0), TokenLifetime: DurationPtr(0)}},
		{name: "everything at its most", p: Policy{MaxAge: DurationPtr(day), StaleWhileRevalidate: DurationPtr(7 * day), StaleIfError: DurationPtr(7 * day), EdgeHold: DurationPtr(7 * day), TokenLifetime: DurationPtr(366 * day)}},
		{name: "maxAge too short", p: Policy{MaxAge: DurationPtr(59 * time.Second)}, want: "policy: maxAge is 59s; it must be from 1m to 24h"},
		{name: "maxAge too long", p: Policy{MaxAge: DurationPtr(day + 1)}, want: "it must be from 1m to 24h"},
		{name: "maxAge zero in development", p: Policy{MaxAge: DurationPtr(0)}, dev: true},
		{name: "maxAge negative in development", p: Policy{MaxAge: DurationPtr(-1)}, dev: true, want: "policy: maxAge is -1ns"},
		{name: "maxAge of a century in development", p: Policy{MaxAge: DurationPtr(876000 * time.Hour)}, dev: true, want: "policy: maxAge is 876000h"},
		{name: "staleWhileRevalidate too long", p: Policy{StaleWhileRevalidate: DurationPtr(7*day + 1)}, want: "policy: staleWhileRevalidate is"},
		{name: "staleIfError negative", p: Policy{StaleIfError: DurationPtr(-time.Second)}, want: "policy: staleIfError is -1s; it must be from 0s to 168h"},
		{name: "edgeHold too long", p: Policy{EdgeHold: DurationPtr(8 * day)}, want: "policy: edgeHold is 192h"},
		{name: "tokenLifetime too long", p: Policy{TokenLifetime: DurationPtr(367 * day)}, want: "policy: tokenLifetime is"},
		{name: "relying parties", p: Policy{RelyingParties: []string{"aws", "my-app"}}},
		{name: "a relying party that is not a name", p: Policy{RelyingParties: []string{"aws", "My App"}}, want: `policy: relying party "My App": it is neither a name`},
		{name: "a vantage that is not a name", p: Policy{ObserveFrom: []string{"eu", "a/b"}}, want: `policy: observeFrom has "a/b", which is not a name of a vantage`},
		{name: "origins", p: Policy{Origins: []string{"origin.example.com", "10.0.0.1:8443", "[::1]:8443"}}},
		{name: "an empty origin", p: Policy{Origins: []string{""}}, want: `policy: origin "" is not a host or host:port`},
		{name: "a URL for an origin", p: Policy{Origins: []string{"https://origin.example.com"}}, want: "is not a host or host:port"},
		{name: "an origin with user info", p: Policy{Origins: []string{"u@origin.example.com"}}, want: "is not a host or host:port"},
	} {
		err := tt.p.Check(tt.dev)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v; want %q", tt.name, err, tt.want)
		}
	}
}

func TestADeclaredTokenLifetimeStaysDeclared(t *testing.T) {
	s := newSet(t, awsPolicy())
	if _, err := s.SetPolicy(change(t0), Policy{}); err == nil || !strings.Contains(err.Error(), "cannot become undeclared") {
		t.Errorf("error %v", err)
	}
}

// Anyone who reads the history sees what was lowered, and from what.
func TestSetPolicyRecordsWhatChanged(t *testing.T) {
	for want, edit := range map[string]func(p *Policy){
		"set policy": func(*Policy) {},
		"set policy: observeFrom eu, us, was not declared":                                 func(p *Policy) { p.ObserveFrom = []string{"eu", "us"} },
		"set policy: edgeHold 15m, was not declared":                                       func(p *Policy) { p.EdgeHold = DurationPtr(15 * time.Minute) },
		"set policy: origins a.example.com, was not declared; tokenLifetime 2h, was 1h":    func(p *Policy) { p.TokenLifetime, p.Origins = DurationPtr(2*time.Hour), []string{"a.example.com"} },
		"set policy: private true, was not declared; relyingParties not declared, was aws": func(p *Policy) { p.RelyingParties, p.Private = nil, true },
	} {
		p := awsPolicy()
		p.TokenLifetime = DurationPtr(time.Hour)
		s := newSet(t, p)
		p = p.Clone()
		edit(&p)
		s, err := s.SetPolicy(because(t0, "x"), p)
		if err != nil {
			t.Fatal(err)
		}
		if h := s.History(); h[len(h)-1].What != want {
			t.Errorf("the line of history is %q, want %q", h[len(h)-1].What, want)
		}
	}
}
