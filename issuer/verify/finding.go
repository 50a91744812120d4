package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/text"
)

// Severity sorts findings.
type Severity string

// The severities: Fail breaks relying parties or will, Warn works and is not right, OK is as it should be.
const (
	OK   Severity = "ok"
	Warn Severity = "warn"
	Fail Severity = "fail"
)

// Finding is what one check found, in parts that a caller can print, record or count. Every text in it is one line that
// is safe for a terminal, whatever a server sent.
type Finding struct {
	Code     string // of the check, in words joined by hyphens; scripts rely on it
	Severity Severity
	At       []string // the addresses that it was found at, as HOST:PORT; empty when it is about all of them
	Evidence string   // what was seen, as one sentence
	Effect   string   // what a relying party makes of it, in its own words where they are known; may be empty
	Repair   string   // what to do about it; may be empty
}

// Message returns the evidence, and where it was found unless it says so itself.
func (f Finding) Message() string {
	if len(f.At) > 0 && !strings.Contains(f.Evidence, f.At[0]) {
		return "at " + list(f.At) + ": " + f.Evidence
	}
	return f.Evidence
}

// Hint returns the effect and the repair.
func (f Finding) Hint() string {
	if f.Effect != "" && f.Repair != "" {
		return f.Effect + "; " + f.Repair
	}
	return f.Effect + f.Repair
}

// Failed reports whether a finding fails.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Fail })
}

// codes returns those of all checks, in the order in which a relying party comes across them.
func codes() []string {
	return []string{
		"url", "addresses", "reach", "tls-versions", "tls-chain", "tls-expiry",
		"discovery", "issuer", "jwks-uri", "discovery-members", "discovery-headers",
		"jwks", "jwks-keys", "jwks-headers", "jwks-alias", "same-keys", "stored-keys", "head", "speed", "shared-cache",
		"token-form", "token-issuer", "token-kid", "token-signature", "token-time", "token-claims",
	}
}

// What AWS STS answers to AssumeRoleWithWebIdentity. It does not say more than this, whatever the cause.
const (
	awsNoKey      = `AWS STS says "Couldn't retrieve verification key from your identity provider"`
	awsNoProvider = `AWS STS says "No OpenIDConnect provider found in your account"`
	awsThumbprint = `AWS STS says "OpenIDConnect provider's HTTPS certificate doesn't match configured thumbprint"`
)

// report collects findings.
type report struct {
	findings []Finding
}

// advice has a finding's Effect and Repair.
type advice struct{ effect, repair string }

func (r *report) add(s Severity, code string, a advice, evidence string) {
	r.findings = append(r.findings, Finding{Code: code, Severity: s, Evidence: clean(evidence), Effect: clean(a.effect), Repair: clean(a.repair)})
}

func (r *report) ok(code, format string, args ...any) {
	r.add(OK, code, advice{}, fmt.Sprintf(format, args...))
}

func (r *report) warn(code string, a advice, format string, args ...any) {
	r.add(Warn, code, a, fmt.Sprintf(format, args...))
}

func (r *report) fail(code string, a advice, format string, args ...any) {
	r.add(Fail, code, a, fmt.Sprintf(format, args...))
}

// merge adds what was found at single addresses: once, with all the addresses that it was found at.
func (r *report) merge(visits []*visit) {
	first := len(r.findings)
	at := map[[5]string]int{}
	for _, v := range visits {
		for _, f := range v.findings {
			key := [...]string{f.Code, string(f.Severity), f.Evidence, f.Effect, f.Repair}
			i, known := at[key]
			if !known {
				i = len(r.findings)
				at[key] = i
				r.findings = append(r.findings, f)
			}
			if g := &r.findings[i]; !slices.Contains(g.At, v.look.Address) {
				g.At = append(g.At, v.look.Address)
			}
		}
	}
	for i := first; i < len(r.findings); i++ {
		if f := &r.findings[i]; len(f.At) == len(visits) {
			f.At = nil
		}
	}
}

// sort brings the findings into the order of codes.
func (r *report) sort() {
	order := codes()
	slices.SortStableFunc(r.findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, a.Code), slices.Index(order, b.Code))
	})
}

// list joins with "and", and counts what is too much to read.
func list(all []string) string {
	if extra := len(all) - maxAddresses; extra > 0 {
		return strings.Join(all[:maxAddresses], ", ") + fmt.Sprintf(" and %d more", extra)
	}
	if n := len(all); n > 1 {
		return strings.Join(all[:n-1], ", ") + " and " + all[n-1]
	}
	return strings.Join(all, "")
}

// printable makes text of a stranger's server short, and keeps it from moving the cursor of a terminal or turning the
// direction of its text.
func printable(s string) string { return text.OneLine(s, 400) }

// clean is printable without a limit.
func clean(s string) string { return text.OneLine(s, 0) }
