package iampolicy

import (
	"fmt"
	"maps"
	"slices"
)

// rolePolicyLength is how many characters all inline policies of a role may have together. No quota raises it.
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
const rolePolicyLength = 10240

// Change is a policy to put. It is unnecessary if Diff is empty.
type Change struct {
	Text string
	Diff []string // "+ …" is added, "- …" is removed
	Lost []string // by Replace: permissions that go, which are grants that go and denials that come
	Kept []string // by Extend: what stays and is not asked for
}

// Replace returns the change from old to now.
func Replace(old, now Document) (Change, error) {
	gone, added := without(old.grants(), now.grants()), without(now.grants(), old.grants())
	text, err := now.Fit(rolePolicyLength)
	return Change{Text: text, Diff: diffLines(grantLines(gone), grantLines(added)), Lost: lost(gone, added)}, err
}

// Extend returns the change that adds to old what now has more. Nothing goes. The error reports that both do not fit into one
// policy, or that now has a Deny which old does not: it would take away.
func Extend(old, now Document) (Change, error) {
	kept, more := without(old.grants(), now.grants()), without(now.grants(), old.grants())
	if denials := sorted(grantLines(ofEffect("Deny", more))); len(denials) > 0 && !old.Empty() {
		return Change{}, fmt.Errorf("it would get the statement %s, which takes permissions away", denials[0])
	}
	if len(kept) == 0 {
		return Replace(old, now)
	}
	text, err := old.union(now).Fit(rolePolicyLength)
	if err != nil {
		return Change{}, fmt.Errorf("with what it has and what it needs, it %w", err)
	}
	return Change{Text: text, Diff: diffLines(nil, grantLines(more)), Kept: sorted(grantLines(kept))}, nil
}

// lost describes what is no longer permitted: an Allow that goes, a Deny that comes.
func lost(gone, added map[grant]bool) []string {
	return slices.Concat(sorted(grantLines(ofEffect("Allow", gone))), sorted(grantLines(ofEffect("Deny", added))))
}

func ofEffect(effect string, grants map[grant]bool) map[grant]bool {
	out := maps.Clone(grants)
	maps.DeleteFunc(out, func(g grant, _ bool) bool { return g.Effect != effect })
	return out
}

// without returns what a has and b does not.
func without[K comparable](a, b map[K]bool) map[K]bool {
	out := maps.Clone(a)
	maps.DeleteFunc(out, func(k K, _ bool) bool { return b[k] })
	return out
}

func sorted(lines map[string]bool) []string { return slices.Sorted(maps.Keys(lines)) }

// diffLines lists what goes, then what comes.
func diffLines(before, after map[string]bool) []string {
	var out []string
	for _, l := range sorted(without(before, after)) {
		out = append(out, "- "+l)
	}
	for _, l := range sorted(without(after, before)) {
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
