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

Made from the table of causes (issuer/verify/finding/table.go) by ` + "`KEYPOST_UPDATE=1 go test ./issuer/verify`" + `: edit that.

Commands here that have no ` + "`--store`" + ` find the key sets by KEYPOST_STORE.

The causes stand in the order in which a relying party meets them, and so do findings: failures first, then warnings. Repair the
first failure first. Under each cause stands what relying parties print when it is so (the beginning of the message, or the code), what
to do, and the source that shows that it happens. ` + "`keypost verify --explain CAUSE`" + ` prints the same.

`

// TestREADME: the documentation is what the program says.
func TestREADME(t *testing.T) {
	var b strings.Builder
	b.WriteString(preface)
	fmt.Fprintf(&b, "There are %d causes.\n\n", len(finding.Causes()))
	last := ""
	for _, c := range finding.Causes() {
		heading := c.Area()
		if c.Code == finding.NotCompared {
			heading = "The comparison"
		}
		if heading != last {
			last = heading
			fmt.Fprintf(&b, "## %s\n\n", heading)
		}
		writeCause(&b, c)
	}
	golden.Same(t, "README.md", strings.TrimRight(b.String(), "\n")+"\n")
}

func writeCause(b *strings.Builder, c finding.Cause) {
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
	fmt.Fprintf(b, "- Source: %s\n", c.Source)
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
