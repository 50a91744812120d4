// Package answers reads errors: it finds what relying parties answer in what a program printed, however it is wrapped, and so
// the causes that it may have. It makes no calls.
package answers

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/keypost/keypost/issuer/verify/finding"
)

// Causes returns the causes that have an answer in a text, those that people meet most first, else in the order of the table. The
// text is an error as a program printed it, also in the middle of a log, wrapped by an SDK, or as JSON.
func Causes(text string) []finding.Cause {
	words := map[finding.Answer]string{}
	for _, c := range finding.Causes() {
		for _, a := range c.Answers {
			words[a] = wordsOf(a)
		}
	}
	found, specific := map[finding.Answer]bool{}, map[string]bool{} // answers, and parties with one that is not vague
	lines := strings.FieldsFunc(unescaped(text), func(r rune) bool { return r == '\n' })
	for _, line := range append(lines, strings.Join(lines, " ")) { // a terminal may have broken a message
		for _, a := range longest(plain(line), words) {
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
// before those of what they called.
func longest(line string, words map[finding.Answer]string) (has []finding.Answer) {
	type kind struct {
		party string
		vague bool
	}
	best := map[kind]int{}
	for a, w := range words {
		if hasWords(line, w) {
			has = append(has, a)
			k := kind{a.Party, vague(a)}
			best[k] = max(best[k], len(w))
		}
	}
	return slices.DeleteFunc(has, func(a finding.Answer) bool { return len(words[a]) < best[kind{a.Party, vague(a)}] })
}

// wordsOf returns what of an answer has to be in a text: the message, else the code. Each SDK has its own way to write the two
// together: "InvalidIdentityToken: Incorrect token audience", "An error occurred (InvalidIdentityToken) when calling …".
func wordsOf(a finding.Answer) string {
	code, message, both := strings.Cut(a.Text, ": ")
	if both && !strings.ContainsFunc(code, unicode.IsSpace) && !strings.HasSuffix(code, "oidc") {
		return plain(message)
	}
	return plain(a.Text)
}

// vague reports whether an answer goes with many others: a code alone, or what a program puts before another's error.
func vague(a finding.Answer) bool {
	return a.Wraps() || !strings.ContainsFunc(a.Text, unicode.IsSpace) && !strings.HasPrefix(a.Text, "AADSTS")
}

// hasWords reports whether words are in a line, and not as a part of longer ones: AADSTS70021 is not in AADSTS700213.
func hasWords(line, words string) bool {
	inWord := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	for at := 0; words != ""; {
		i := strings.Index(line[at:], words)
		if i < 0 {
			return false
		}
		start, end := at+i, at+i+len(words)
		before, _ := utf8.DecodeLastRuneInString(line[:start])
		first, _ := utf8.DecodeRuneInString(words)
		after, _ := utf8.DecodeRuneInString(line[end:])
		last, _ := utf8.DecodeLastRuneInString(words)
		within := inWord(before) && inWord(first) || inWord(last) && unicode.IsDigit(after)
		if !within {
			return true
		}
		at = start + 1
	}
	return false
}

var (
	escapeSequence = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
	jsonEscape     = regexp.MustCompile(`\\+(u00[0-9a-fA-F]{2}|[nrt"'/])`)
)

// unescaped returns text without what JSON, XML, a shell or a terminal have added to it.
func unescaped(text string) string {
	text = escapeSequence.ReplaceAllString(html.UnescapeString(text), "")
	return jsonEscape.ReplaceAllStringFunc(text, func(s string) string {
		switch s = strings.TrimLeft(s, `\`); s[0] {
		case 'n', 'r':
			return "\n"
		case 't':
			return " "
		case 'u':
			return map[string]string{"u0027": "'", "u0022": `"`, "u003c": "<", "u003e": ">", "u0026": "&", "u0060": "`"}[strings.ToLower(s)]
		default:
			return s
		}
	})
}

// plain returns a line as it is compared: in lower case, with plain quotation marks and single spaces.
func plain(line string) string {
	line = strings.NewReplacer("’", "'", "‘", "'", "“", `"`, "”", `"`).Replace(strings.ToLower(line))
	return strings.Join(strings.Fields(line), " ")
}
