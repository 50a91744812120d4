package watch

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore/observation"
	pki "github.com/keypost/keypost/test/authority"
)

func rogue(at ...string) finding.Finding {
	return finding.Finding{Code: "key-rogue", Severity: finding.Fail, Evidence: "a stranger's key", At: at}
}

func missing(at ...string) finding.Finding {
	return finding.Finding{Code: "key-missing", Severity: finding.Fail, Evidence: "a key is missing", At: at}
}

func cached(at ...string) finding.Finding {
	return finding.Finding{Code: "key-still-there", Severity: finding.Warn, Evidence: "a key is still cached", At: at}
}

// sighting is a look that is complete unless something failed.
func sighting(findings ...finding.Finding) verify.Sight {
	return verify.Sight{Look: observation.Look{Answers: 16, End: start}, Findings: findings}
}

func failedAt(s verify.Sight, at string) verify.Sight {
	s.Failed = append(s.Failed, at)
	s.Look.Gaps = append(s.Look.Gaps, "at "+at+": no answer within 5s")
	return s
}

func uncompared(s verify.Sight) verify.Sight {
	s.Findings, s.NotCompared = nil, "the store cannot be read"
	return s
}

// What a look makes of an issuer. Each line is a run of looks; the last one decides.
func TestConditions(t *testing.T) {
	made := func(s verify.Sight) outcome { return outcome{sight: s, at: start} }
	silent := verify.Sight{Look: observation.Look{Gaps: []string{"at a: no answer within 5s"}}, Failed: []string{"a"}, NotCompared: "no JWKS could be read"}
	none := outcome{err: errors.New("no such host"), at: start}
	for name, tt := range map[string]struct {
		looks []outcome
		want  []Condition
	}{
		"as it should be":                            {[]outcome{made(sighting())}, nil},
		"a stranger's key":                           {[]outcome{made(sighting(rogue("a")))}, []Condition{RogueKey}},
		"gone again":                                 {[]outcome{made(sighting(rogue("a"))), made(sighting())}, nil},
		"its address does not answer":                {[]outcome{made(sighting(rogue("a"))), made(failedAt(sighting(), "a"))}, []Condition{RogueKey, Incomplete}},
		"and the next time neither":                  {[]outcome{made(sighting(rogue("a"))), made(failedAt(sighting(), "a")), made(failedAt(sighting(), "a"))}, []Condition{RogueKey, Incomplete}},
		"and then it answers":                        {[]outcome{made(sighting(rogue("a"))), made(failedAt(sighting(), "a")), made(sighting())}, nil},
		"another address does not answer":            {[]outcome{made(sighting(rogue("a"))), made(failedAt(sighting(), "b"))}, []Condition{Incomplete}},
		"then the store cannot be read":              {[]outcome{made(sighting(rogue("a"))), made(uncompared(sighting()))}, []Condition{RogueKey, NotCompared}},
		"then no look can be made":                   {[]outcome{made(sighting(rogue("a"), missing("a"))), none}, []Condition{RogueKey, ServedNotStored, Unreachable}},
		"then nothing answers":                       {[]outcome{made(sighting(rogue("a"))), made(silent)}, []Condition{RogueKey, Unreachable, Incomplete, NotCompared}},
		"the store cannot be read":                   {[]outcome{made(uncompared(sighting()))}, []Condition{NotCompared}},
		"a key is missing":                           {[]outcome{made(sighting(missing("a")))}, []Condition{ServedNotStored}},
		"a key is missing, and cached elsewhere":     {[]outcome{made(sighting(cached("b"), missing("a")))}, []Condition{ServedNotStored}},
		"a revoked key is cached":                    {[]outcome{made(sighting(cached("a")))}, nil},
		"a key is missing where nothing answers now": {[]outcome{made(sighting(missing("a"))), made(failedAt(sighting(), "a"))}, []Condition{ServedNotStored, Incomplete}},
		"nothing was recorded":                       {[]outcome{{sight: sighting(), notRecorded: errors.New("read-only"), at: start}}, []Condition{NotRecorded}},
		"recorded again":                             {[]outcome{{sight: sighting(), notRecorded: errors.New("read-only"), at: start}, made(sighting())}, nil},
	} {
		var s Status
		for _, o := range tt.looks {
			s = s.after(o)
		}
		var got []Condition
		for _, c := range Conditions() {
			if _, holds := s.Conditions[c]; holds {
				got = append(got, c)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// chain returns certificates as they are verified: leaf, intermediate, root.
func chain(t *testing.T, organisation, intermediate string, leafEnds time.Time) []*x509.Certificate {
	t.Helper()
	name := pkix.Name{CommonName: intermediate}
	if organisation != "" {
		name.Organization = []string{organisation}
	}
	root := pki.Certify(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "root"}, NotAfter: start.Add(24 * time.Hour)})
	inner := pki.Certify(t, root, &x509.Certificate{Subject: name, NotAfter: start.Add(1000 * time.Hour)})
	leaf := pki.Certify(t, inner, &x509.Certificate{Subject: pkix.Name{CommonName: "oidc.example.com"}, NotAfter: leafEnds})
	return []*x509.Certificate{leaf.Cert, inner.Cert, root.Cert}
}

// A condition says why it holds, and where: what each address showed, each once.
func TestDetails(t *testing.T) {
	silent := verify.Sight{Look: observation.Look{Gaps: []string{"at a: no answer within 5s"}, Addresses: []string{"a", "b"}}, NotCompared: "no JWKS could be read"}
	second := rogue("b", "a", "c")
	second.Evidence = "another stranger's key"
	for name, tt := range map[string]struct {
		o    outcome
		want map[Condition]Detail
	}{
		"no look":         {outcome{err: errors.New("no such host")}, map[Condition]Detail{Unreachable: {Evidence: []string{"no such host"}}}},
		"nothing answers": {outcome{sight: silent}, map[Condition]Detail{Unreachable: {silent.Look.Gaps, []string{"a", "b"}}, Incomplete: {Evidence: silent.Look.Gaps}, NotCompared: {Evidence: []string{"no JWKS could be read"}}}},
		"one answers":     {outcome{sight: failedAt(verify.Sight{Look: observation.Look{Answers: 1}}, "a")}, map[Condition]Detail{Incomplete: {Evidence: []string{"at a: no answer within 5s"}}}},
		"not recorded":    {outcome{sight: sighting(), notRecorded: errors.New("read-only")}, map[Condition]Detail{NotRecorded: {Evidence: []string{"read-only"}}}},
		"two strangers' keys, and one is missing": {outcome{sight: sighting(rogue("a", "b"), missing("d"), second)}, map[Condition]Detail{
			RogueKey: {[]string{"a stranger's key", "another stranger's key"}, []string{"a", "b", "c"}}, ServedNotStored: {[]string{"a key is missing"}, []string{"d"}}}},
	} {
		if got := (Status{}).after(tt.o).Conditions; !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// Every certificate counts that the server sends; the root is not its own, unless it is all there is.
func TestExpiry(t *testing.T) {
	ends := start.Add(2000 * time.Hour)
	long := chain(t, "x", "y", ends) // whose intermediate ends after 1000 hours, and the root after 24
	for name, tt := range map[string]struct {
		chains [][]*x509.Certificate
		want   time.Time
	}{
		"nothing":             {nil, time.Time{}},
		"the intermediate's":  {[][]*x509.Certificate{long}, start.Add(1000 * time.Hour)},
		"two certificates":    {[][]*x509.Certificate{long[:2]}, ends},
		"only one":            {[][]*x509.Certificate{long[2:]}, start.Add(24 * time.Hour)},
		"the first of two":    {[][]*x509.Certificate{long, chain(t, "x", "y", start.Add(time.Hour))}, start.Add(time.Hour)},
		"the second of three": {[][]*x509.Certificate{long, chain(t, "x", "y", start.Add(time.Hour)), long}, start.Add(time.Hour)},
	} {
		var chains []verify.Chain
		for _, c := range tt.chains {
			chains = append(chains, verify.Chain{Certificates: c})
		}
		if got := expiry(chains); !got.Equal(tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// Where one address fails that showed something, and another one shows it now, that is what is known.
func TestWhatIsSeenNowCounts(t *testing.T) {
	s := Status{}.after(outcome{sight: sighting(rogue("a")), at: start})
	s = s.after(outcome{sight: failedAt(sighting(rogue("b")), "a"), at: start})
	if d := s.Conditions[RogueKey]; !slices.Equal(d.At, []string{"b"}) {
		t.Errorf("%+v", d)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
