package verify

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/test/golden"
)

const preface = `# What keypost verify finds

Made from the catalogue of causes and the lists of set-ups by ` + "`KEYPOST_UPDATE=1 go test ./issuer/verify`" + `: edit those.

Commands here that have no ` + "`--store`" + ` find the key sets by KEYPOST_STORE.

The causes stand in the order in which a relying party meets them, and so do findings: failures first, then warnings. The
first failure is the cause to repair first. Under each cause stands what is printed when it is so (the beginning of the
message, or the code; where nothing is printed, nobody says a word), what to do, and the set-ups that prove it. Each is really
broken, and has this cause as its first finding; those of the issuer, the token and AWS have it no more after the repair. A
cause without one follows from another, or is proved by a test of its own.

`

// TestREADME: the documentation is what the program says and the tests prove.
func TestREADME(t *testing.T) {
	var b strings.Builder
	b.WriteString(preface)
	proofs := map[string][]string{}
	all := allListed(t)
	for _, s := range all {
		proofs[s.code] = append(proofs[s.code], s.name)
	}
	fmt.Fprintf(&b, "There are %d causes, %d broken set-ups and %d in which nothing is wrong.\n\n", len(finding.Causes()), len(all)-len(proofs["-"]), len(proofs["-"]))
	for _, area := range finding.Areas() {
		fmt.Fprintf(&b, "## %s\n\n", area.Title)
		for _, c := range area.Causes {
			writeCause(&b, c, proofs[c.Code])
			delete(proofs, c.Code)
		}
	}
	b.WriteString("## Nothing is wrong\n\nIn these set-ups nothing fails.\n\n")
	for _, name := range proofs["-"] {
		fmt.Fprintf(&b, "- %s\n", name)
	}
	delete(proofs, "-")
	for code, names := range proofs {
		t.Errorf("%q is to prove %s, which is no cause", names, code)
	}
	golden.Same(t, "README.md", b.String())
}

func writeCause(b *strings.Builder, c finding.Cause, proofs []string) {
	fmt.Fprintf(b, "### %s\n\n%s (check %s).", c.Code, sentence(c.Title), c.Check)
	if c.Effect != "" {
		fmt.Fprintf(b, " %s.", sentence(c.Effect))
	}
	b.WriteString("\n\n")
	var parties []string
	for _, a := range c.Answers {
		if !slices.Contains(parties, a.Party) {
			parties = append(parties, a.Party)
		}
	}
	for _, party := range parties {
		var texts []string
		for _, a := range c.Answers {
			if a.Party == party {
				texts = append(texts, code(a.Text))
			}
		}
		fmt.Fprintf(b, "- %s: %s\n", party, strings.Join(texts, ", "))
	}
	fmt.Fprintf(b, "- Repair: %s\n", commands(c.Repair))
	if len(proofs) > 0 {
		fmt.Fprintf(b, "- Proved by: %s\n", strings.Join(proofs, "; "))
	}
	b.WriteString("\n")
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func code(s string) string {
	if strings.Contains(s, "`") {
		return "`` " + s + " ``"
	}
	return "`" + s + "`"
}

// command matches one in a repair: it goes on to the end of the clause.
var command = regexp.MustCompile(`\b(keypost|kubectl|aws|oc|gcloud|chronyc) [a-z][^,;:()]*(:[^ ,;()][^,;:()]*)*`)

// commands marks the commands in a repair, so that test/commands checks each.
func commands(s string) string {
	return command.ReplaceAllStringFunc(s, func(c string) string {
		trimmed := strings.TrimRight(c, " ")
		return "`" + trimmed + "`" + c[len(trimmed):]
	})
}
