package party

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/golden"
)

const preface = `# Relying parties

Made from keystore/party by ` + "`KEYPOST_UPDATE=1 go test ./keystore/party`" + `: edit that. The quotes were read on %s.

A key set names its relying parties by the flag ` + "`--relying-party`" + ` of issuer add and issuer set. What stands under "keeps keys for" is what gates wait
for, besides max-age. A relying party that is not here counts as one that keeps keys for 24 hours.

npm and PyPI have fixed lists of issuers and take no other. AWS outbound federation makes AWS the issuer: its tokens are none of yours.

`

// facts are the headings of a relying party's part of the page, in their order.
func (p Party) facts() []struct {
	heading string
	facts   []Fact
} {
	return []struct {
		heading string
		facts   []Fact
	}{
		{"is given keys by", p.Given},
		{"keeps keys for", p.Keeping},
		{"algorithms", []Fact{p.Signed}},
		{"audience", []Fact{p.Audience}},
		{"limits", p.Limits},
		{"its fetch", []Fact{p.Fetch}},
		{"what ends its trust", p.Ends},
		{"error texts", p.Refusals},
	}
}

// TestPage: docs/reference/relying-parties.md has each relying party under the same headings, and each figure with its source.
func TestPage(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	fmt.Fprintf(&b, preface, checked)
	b.WriteString("| relying party | name | keeps keys for |\n|---|---|---|\n")
	for _, p := range All() {
		keeps := strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(p.Keeps.String())
		if p.Keeps == 0 {
			keeps = "until it sees a new key ID; an old key perhaps without end"
		}
		fmt.Fprintf(&b, "| [%s](#%s) | `%s` | %s |\n", p.Title, anchor(p.Title), p.Name, keeps)
	}
	for _, p := range All() {
		fmt.Fprintf(&b, "\n## %s\n\n", p.Title)
		if p.Tried == "" {
			b.WriteString("From documentation; not tried here.\n\n")
		} else {
			fmt.Fprintf(&b, "Tried here: `%s`.\n\n", p.Tried)
		}
		for _, h := range p.facts() {
			for _, f := range h.facts {
				fmt.Fprintf(&b, "- **%s:** %s\n", h.heading, f.text())
			}
		}
	}
	golden.Same(t, "../../docs/reference/relying-parties.md", b.String())
}

func (f Fact) text() string {
	switch {
	case f.Page == "":
		return f.Says
	case f.Quote == "":
		return fmt.Sprintf("%s ([source](%s))", f.Says, f.Page)
	}
	return fmt.Sprintf("%s ([source](%s): “%s”)", f.Says, f.Page, f.Quote)
}

func anchor(title string) string {
	return strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

// What gates go by cannot be forgotten: how long keys are kept, real algorithms, and names that nobody else has.
func TestPartiesAreWhole(t *testing.T) {
	t.Parallel()
	algorithms := []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"}
	taken := map[string]string{}
	for _, p := range All() {
		if (p.Keeps == 0) != p.OnMiss || p.Keeps < 0 || Check(p.Name) != nil {
			t.Errorf("%s keeps keys for %v, on a miss %v, %v", p.Name, p.Keeps, p.OnMiss, Check(p.Name))
		}
		for _, alg := range p.Takes {
			if !slices.Contains(algorithms, alg) || !strings.Contains(p.Signed.Says, alg) {
				t.Errorf("%s takes %s, and its page says %s", p.Name, alg, p.Signed.Says)
			}
		}
		for _, name := range append([]string{p.Name, p.Title}, p.Called...) {
			if by := taken[name]; by != "" {
				t.Errorf("%s and %s are both called %s", by, p.Name, name)
			}
			taken[name] = p.Name
		}
	}
}
