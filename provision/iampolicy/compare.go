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
	lost := slices.Concat(gone.of("Allow").lines(), added.of("Deny").lines())
	return Change{Text: text, Diff: diffLines(gone.lines(), added.lines()), Lost: lost}, err
}

// Extend returns the change that adds to old what now has more. Nothing goes. The error reports that both do not fit into one
// policy, or that now has a Deny which old does not: it would take away.
func Extend(old, now Document) (Change, error) {
	kept, more := without(old.grants(), now.grants()), without(now.grants(), old.grants())
	if denials := more.of("Deny").lines(); len(denials) > 0 && !old.Empty() {
		return Change{}, fmt.Errorf("it would get the statement %s, which takes permissions away", denials[0])
	}
	if len(kept) == 0 {
		return Replace(old, now)
	}
	both := Document{version: now.version}
	seen := map[string]bool{}
	for _, s := range slices.Concat(old.statements, now.statements) {
		if k := s.line(); !seen[k] {
			seen[k] = true
			both.statements = append(both.statements, s)
		}
	}
	text, err := both.Fit(rolePolicyLength)
	if err != nil {
		return Change{}, fmt.Errorf("with what it has and what it needs, it %w", err)
	}
	return Change{Text: text, Diff: diffLines(nil, more.lines()), Kept: kept.lines()}, nil
}

// grants are statements of one action and one resource, by their lines. Documents with the same grants permit the same, however they
// group them.
type grants map[string]statement

// grants returns a document's permissions one by one. A negated list cannot be split without changing its meaning.
func (d Document) grants() grants {
	out := grants{}
	for _, s := range d.statements {
		for _, action := range one(s.Action) {
			for _, resource := range one(s.Resource) {
				g := s
				g.Sid, g.Action, g.Resource = "", action, resource
				out[g.line()] = g
			}
		}
	}
	return out
}

// one returns a set's values as sets of one. A set of none has one such set, nil.
func one(set values) []values {
	if len(set) == 0 {
		return []values{nil}
	}
	return slices.Collect(slices.Chunk(set, 1))
}

// of returns those with an effect.
func (g grants) of(effect string) grants {
	out := maps.Clone(g)
	maps.DeleteFunc(out, func(_ string, s statement) bool { return s.Effect != effect })
	return out
}

// lines describes grants, sorted: those that differ only in their action are one statement.
func (g grants) lines() []string {
	together := grants{}
	for _, s := range g {
		rest := s
		rest.Action = nil
		s.Action = slices.Concat(together[rest.line()].Action, s.Action)
		slices.Sort(s.Action)
		together[rest.line()] = s
	}
	var out []string
	for _, s := range together {
		out = append(out, s.line())
	}
	slices.Sort(out)
	return out
}

// without returns what a has and b does not.
func without(a, b grants) grants {
	out := maps.Clone(a)
	maps.DeleteFunc(out, func(line string, _ statement) bool { _, has := b[line]; return has })
	return out
}

// diffLines lists what goes, then what comes.
func diffLines(gone, added []string) []string {
	var out []string
	for _, l := range gone {
		out = append(out, "- "+l)
	}
	for _, l := range added {
		out = append(out, "+ "+l)
	}
	return out
}

// lines returns those of statements, sorted, once each.
func lines(statements []statement) []string {
	var out []string
	for _, s := range statements {
		out = append(out, s.line())
	}
	slices.Sort(out)
	return slices.Compact(out)
}
