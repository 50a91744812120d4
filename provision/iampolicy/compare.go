package iampolicy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Write is a policy to put. It is unnecessary if Diff is empty.
type Write struct {
	Text string
	Diff []string // "+ …" is added, "- …" is removed
}

// Change leads from one permissions policy to another in two writes: Early adds, Late takes away.
type Change struct {
	Early, Late Write
	Lost        []string // permissions that Late takes away: grants that go, denials that come
	Whole       bool     // Late makes the whole change, and Early is empty
}

// Compare returns the change from old to now. Between the two writes stands the union of both documents. If the union
// exceeds the limit of inline policies, or the denials differ (then no order of two writes is better than one), Late makes the
// whole change.
func Compare(old, now Document) (Change, error) {
	before, after := old.grants(), now.grants()
	text, err := now.Fit(rolePolicyLength)
	if err != nil {
		return Change{}, err
	}
	whole := Change{Late: Write{text, diffLines(before, after)}, Lost: lost(before, after), Whole: true}
	union, err := old.union(now).Fit(rolePolicyLength)
	if err != nil || slices.ContainsFunc(whole.Late.Diff, func(l string) bool { return isDeny(l[len("+ "):]) }) {
		return whole, nil
	}
	between := maps.Clone(before)
	maps.Copy(between, after)
	c := Change{Early: Write{union, diffLines(before, between)}, Late: Write{text, diffLines(between, after)}, Lost: whole.Lost}
	if len(c.Late.Diff) == 0 {
		c.Early.Text = text // the same permissions, as now writes them
	}
	return c, nil
}

func isDeny(grant string) bool { return strings.HasPrefix(grant, "Deny ") }

// lost returns what is no longer permitted: an Allow that goes, a Deny that comes.
func lost(before, after map[string]bool) []string {
	allowed := func(line string) bool { return !isDeny(line) }
	return slices.Concat(slices.DeleteFunc(minus(before, after), isDeny), slices.DeleteFunc(minus(after, before), allowed))
}

// minus returns what a has and b lacks, sorted.
func minus(a, b map[string]bool) []string {
	var out []string
	for k := range a {
		if !b[k] {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// diffLines lists what goes, then what comes.
func diffLines(before, after map[string]bool) []string {
	var out []string
	for _, l := range minus(before, after) {
		out = append(out, "- "+l)
	}
	for _, l := range minus(after, before) {
		out = append(out, "+ "+l)
	}
	return out
}

// union has the statements of both documents, once each.
func (d Document) union(e Document) Document {
	out := Document{version: e.version}
	seen := map[string]bool{}
	for _, s := range slices.Concat(d.statements, e.statements) {
		if k := s.key(); !seen[k] {
			seen[k] = true
			out.statements = append(out.statements, s)
		}
	}
	return out
}

// rolePolicyLength is how many characters all inline policies of a role may have together. No quota raises it.
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
const rolePolicyLength = 10240

// CheckRolePolicy returns an error if IAM would refuse text as an inline policy of a role.
func CheckRolePolicy(text string) error {
	d, err := Parse(text)
	if err != nil {
		return err
	}
	text, err = d.Fit(rolePolicyLength)
	if err != nil {
		return fmt.Errorf("the permissions policy %w, and no quota raises that: put a part into a managed policy", err)
	}
	if i := strings.IndexFunc(text, func(c rune) bool { return c > 0xFF || c < 0x20 && !slices.Contains([]rune("\t\n\r"), c) }); i >= 0 {
		return fmt.Errorf("the permissions policy holds %q at byte %d: AWS takes Latin-1 only", text[i:i+1], i)
	}
	return nil
}
