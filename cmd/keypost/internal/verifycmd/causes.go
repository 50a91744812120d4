package verifycmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/issuer/verify/answers"
	"github.com/keypost/keypost/issuer/verify/finding"
)

// maxError bounds the text of --error, in bytes: it is compared line by line with each answer of the catalogue, and the last
// lines of a log are enough.
const maxError = 64 << 10

// causes returns those of the error that was given, nil if none was.
func (opts *verifyOptions) causes() ([]finding.Cause, error) {
	if opts.errorText == "" {
		return nil, nil
	}
	printed := opts.errorText
	if printed == "-" {
		data, err := io.ReadAll(io.LimitReader(opts.f.In, maxError+1))
		if err != nil {
			return nil, fmt.Errorf("read the text of --error from stdin: %w", err)
		}
		printed = string(data)
	}
	if len(printed) > maxError {
		return nil, errors.New("the text of --error is longer than 64 KiB: give its lines with the error, those at the end of a log (kubectl logs POD --tail 100)")
	}
	causes := answers.Causes(printed)
	if len(causes) == 0 {
		return nil, errors.New("the text has no error that a relying party is known to answer with; give the whole line of the log, with the message itself")
	}
	return causes, nil
}

// causeState is a cause, and what is known of it.
type causeState struct {
	Code    string           `json:"code"`
	Title   string           `json:"title"`
	State   string           `json:"state,omitempty"` // "found", "not found" or "not checked: …"; empty where nothing was looked at
	Message string           `json:"message,omitempty"`
	Answers []finding.Answer `json:"answers,omitempty"`
	Repair  string           `json:"repair"`
	Source  string           `json:"source,omitempty"` // with --explain: where it is written, or tested, that this happens
}

func asCause(c finding.Cause) causeState {
	return causeState{Code: c.Code, Title: c.Title, Answers: c.Answers, Repair: c.Repair}
}

// listCauses prints the causes of an error; nothing was looked at.
func (opts *verifyOptions) listCauses(causes []finding.Cause) error {
	var list []causeState
	for _, c := range causes {
		list = append(list, asCause(c))
	}
	if err := opts.f.Print(map[string]any{"causes": list}, func(w *terminal.Table) { causesTable(w, list) }); err != nil {
		return err
	}
	said := opts.errorText
	if said == "-" {
		said = "TEXT" // that was stdin, once
	}
	opts.f.Notice("which of them it is: %s", cli.Command{"verify", "ISSUER", "--error", said})
	return nil
}

// explainCause prints one cause.
func (opts *verifyOptions) explainCause() error {
	known := slices.IndexFunc(finding.Causes(), func(c finding.Cause) bool { return c.Code == opts.explain })
	if known < 0 {
		return cli.Usagef("keypost knows no cause %q; give a name that keypost verify printed", opts.explain)
	}
	c := finding.Causes()[known]
	s := asCause(c)
	s.Source = c.Source
	return opts.f.Print(s, func(w *terminal.Table) {
		w.Row(c.Code, c.Title)
		for _, a := range c.Answers {
			w.Row("", a.Party+" answers: "+a.Text)
		}
		if c.Effect != "" {
			w.Row("", "effect: "+c.Effect)
		}
		w.Row("", "repair: "+c.Repair)
		w.Row("", "source: "+c.Source)
	})
}

// The states of a cause, in the order in which they are printed.
const (
	causeFound    = "found"
	causeUnknown  = "not checked"
	causeNotSeen  = "not seen from here"
	causeNotFound = "not found"
)

// state returns what the findings say about each cause: first those that were found, then those that nobody has looked for,
// those that may be seen from elsewhere, and the others.
func (opts *verifyOptions) state(causes []finding.Cause, results []verified) []causeState {
	var list []causeState
	for _, c := range causes {
		s := asCause(c)
		s.State = opts.stateOf(c, results)
		for _, r := range results {
			for _, f := range r.Findings {
				if f.Code == c.Code {
					s.State, s.Message, s.Repair = causeFound, cmp.Or(s.Message, f.Message), cmp.Or(f.Repair, s.Repair)
				}
			}
		}
		list = append(list, s)
	}
	rank := func(s causeState) int {
		return slices.IndexFunc([]string{causeFound, causeUnknown, causeNotSeen, causeNotFound}, func(state string) bool { return strings.HasPrefix(s.State, state) })
	}
	slices.SortStableFunc(list, func(a, b causeState) int { return cmp.Compare(rank(a), rank(b)) })
	return list
}

// stateOf returns the state of a cause that was not found: "not found" only where it could have been, for anyone who looks.
func (opts *verifyOptions) stateOf(c finding.Cause, results []verified) string {
	uncompared := func(r verified) bool {
		return slices.ContainsFunc(r.Findings, func(f row) bool { return f.Code == finding.NotCompared })
	}
	lacks := map[finding.Need]bool{
		finding.NeedStore: slices.ContainsFunc(results, uncompared), finding.NeedCluster: opts.cluster.Kubeconfig == "", finding.NeedToken: opts.tokenFile == "",
		finding.NeedRole: opts.roleARN == "", finding.NeedAssume: !opts.assume, finding.NeedPod: true,
	}
	for _, need := range c.Needs() {
		if lacks[need] {
			return causeUnknown + ": " + string(need)
		}
	}
	for _, r := range results {
		made := slices.ContainsFunc(r.Findings, func(f row) bool { return f.Check == c.Check })
		stopped := slices.IndexFunc(r.Findings, func(f row) bool { return f.Severity == finding.Fail || strings.HasSuffix(f.Code, "-forbidden") })
		if !made && stopped >= 0 {
			return causeUnknown + ": repair " + r.Findings[stopped].Code + " first"
		}
	}
	if !c.SeenFromHere() {
		return causeNotSeen
	}
	return causeNotFound
}

// fromHere says what a look from this machine cannot show; empty where it shows the cause.
func fromHere(list []causeState) string {
	if len(list) == 0 || list[0].State == causeFound || !slices.ContainsFunc(list, func(s causeState) bool { return s.State == causeNotSeen }) {
		return ""
	}
	return "nothing was found, but every look was from this machine, and clouds ask from the internet: a firewall, a WAF, a geo block or a private DNS zone may refuse them;" +
		" run the same command outside your network, without --connect"
}

// mostShown is how many causes a table has in full; those that were found are never left out.
const mostShown = 5

func causesTable(w *terminal.Table, list []causeState) {
	if note := fromHere(list); note != "" {
		w.Row(note)
		w.Row()
	}
	var rest []string
	for i, s := range list {
		if i >= mostShown && s.State != causeFound {
			rest = append(rest, s.Code)
			continue
		}
		cells := []any{s.Code, s.Title}
		if s.State != "" {
			cells = append([]any{s.State}, cells...)
		}
		w.Row(cells...)
		indent := slices.Repeat([]any{""}, len(cells)-1)
		if s.Message != "" {
			w.Row(append(slices.Clone(indent), s.Message)...)
		}
		if s.State == "" || s.State == causeFound {
			w.Row(append(slices.Clone(indent), "repair: "+s.Repair)...)
		}
	}
	if len(rest) > 0 {
		w.Row(fmt.Sprintf("… and %d more, less likely (keypost verify --explain NAME): %s", len(rest), strings.Join(rest, ", ")))
	}
}
