// Package answers reads errors: it finds what relying parties answer in what a program printed, however it is wrapped, and so
// the causes that it may have. It makes no calls.
package answers

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/keypost/keypost/issuer/verify/finding"
)

// Causes returns the causes that have an answer in a text, those that people meet most first, else in the order of the table. The
// text is an error as a program printed it, also in the middle of a log, wrapped by an SDK, or as JSON. It may be cut off: three words
// of an answer are enough.
func Causes(text string) []finding.Cause {
	known := map[finding.Answer]string{} // the words of each
	for _, c := range finding.Causes() {
		for _, a := range c.Answers {
			known[a] = wordsOf(a)
		}
	}
	found, specific := map[finding.Answer]bool{}, map[string]bool{} // answers, and parties with one that is not vague
	lines := strings.FieldsFunc(unescaped(text), func(r rune) bool { return r == '\n' })
	for _, line := range append(lines, strings.Join(lines, " ")) { // a terminal may have broken a message
		for _, a := range longest(words(line), known, len(lines) == 1) {
			found[a] = true
			specific[a.Party] = specific[a.Party] || !vague(a)
		}
	}
	causes := slices.DeleteFunc(finding.Causes(), func(c finding.Cause) bool {
		return !slices.ContainsFunc(c.Answers, func(a finding.Answer) bool { return found[a] && (!vague(a) || !specific[a.Party]) })
	})
	slices.SortStableFunc(causes, finding.ByLikelihood)
	return causes
}

// longest returns the answers that a line has: of each party the longest and the longest vague one, as programs put their own words
// before those of what they called. Of an answer that is cut off the part counts that is there; where a whole one says as much, that
// goes before. A line may be whole: all that there is.
func longest(line string, known map[finding.Answer]string, whole bool) (has []finding.Answer) {
	type kind struct {
		party string
		vague bool
	}
	length, best, sure := map[finding.Answer]int{}, map[kind]int{}, 0
	for a, w := range known {
		if strings.Contains(line, w) {
			length[a] = len(w)
			if !vague(a) {
				sure = max(sure, len(w))
			}
		}
	}
	for a, w := range known {
		if part := max(clipped(line, w, whole), clipped(line, words(a.Text), whole)); length[a] == 0 && part > sure {
			length[a] = part
		}
	}
	for a, n := range length {
		has = append(has, a)
		k := kind{a.Party, vague(a)}
		best[k] = max(best[k], n)
	}
	return slices.DeleteFunc(has, func(a finding.Answer) bool { return length[a] < best[kind{a.Party, vague(a)}] })
}

// fewest is how many words of an answer tell it from others.
const fewest = 3

// clipped returns how much of an answer a line has where it begins or ends within it, or, if the line is whole, where it is a part of
// it; 0 for less than a few words. The line's last word may be cut off.
func clipped(line, answer string, whole bool) int {
	enough := func(part string) bool { return len(strings.Fields(part)) >= fewest }
	if whole && strings.Contains(answer, line) && enough(line) {
		return len(line)
	}
	end := strings.TrimSuffix(line, " ")
	for n := len(answer) - 1; n > 0; n-- {
		start, rest := answer[:n], answer[len(answer)-n:]
		if strings.HasSuffix(end, start) && enough(start) || rest[0] == ' ' && strings.HasPrefix(line, rest) && enough(rest) {
			return n
		}
	}
	return 0
}

// wordsOf returns what of an answer has to be in a text: the message, else the code. Each SDK has its own way to write the two
// together: "InvalidIdentityToken: Incorrect token audience", "An error occurred (InvalidIdentityToken) when calling …".
func wordsOf(a finding.Answer) string {
	code, message, both := strings.Cut(a.Text, ": ")
	if both && !strings.ContainsFunc(code, unicode.IsSpace) && !strings.HasSuffix(code, "oidc") {
		return words(message)
	}
	return words(a.Text)
}

// vague reports whether an answer goes with many others: only a code, or what a program puts before another's error.
func vague(a finding.Answer) bool {
	return a.Wraps() || !strings.ContainsFunc(a.Text, unicode.IsSpace) && !strings.HasPrefix(a.Text, "AADSTS")
}

// words returns a text as it is compared: its words in lower case, each with a space before and after it. Some SDKs add Exception to a
// code.
func words(text string) string {
	all := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for i, word := range all {
		all[i] = strings.TrimSuffix(word, "exception")
	}
	return " " + strings.Join(all, " ") + " "
}

var (
	escapeSequence = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
	jsonEscape     = regexp.MustCompile(`\\+(u00[0-9a-fA-F]{2}|[nrt])`)
)

// unescaped returns text without what JSON, XML, a shell or a terminal have added to its words.
func unescaped(text string) string {
	text = escapeSequence.ReplaceAllString(html.UnescapeString(text), "")
	return jsonEscape.ReplaceAllStringFunc(text, func(s string) string {
		if strings.HasSuffix(s, "n") || strings.HasSuffix(s, "r") {
			return "\n"
		}
		return " "
	})
}
