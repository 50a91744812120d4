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
// text is an error as a program printed it, also in the middle of a log, wrapped by an SDK, or as JSON. It may be cut off: three words
// of an answer are enough.
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
		for _, a := range longest(plain(line), words, len(lines) == 1) {
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
func longest(line string, words map[finding.Answer]string, whole bool) (has []finding.Answer) {
	type kind struct {
		party string
		vague bool
	}
	length, best, sure := map[finding.Answer]int{}, map[kind]int{}, 0
	for a, w := range words {
		if hasWords(line, w) {
			length[a] = len(w)
			if !vague(a) {
				sure = max(sure, len(w))
			}
		}
	}
	for a, w := range words {
		if part := max(clipped(line, w, whole), clipped(line, plain(a.Text), whole)); length[a] == 0 && part > sure {
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

// clipped returns how much of an answer's words a line has where it begins or ends among them, or, if it is whole, where it is a part of
// them; 0 for less than a few words. The last word may be cut off.
func clipped(line, words string, whole bool) int {
	line = strings.TrimRight(line, " .…")
	if whole && strings.Contains(words, line) && len(strings.Fields(line)) >= fewest {
		return len(line)
	}
	for n := min(len(line), len(words)); n > 0; n-- {
		start, end := words[:n], words[len(words)-n:]
		switch {
		case strings.HasSuffix(line, start) && wordStarts(line, len(line)-n) && len(strings.Fields(start)) >= fewest,
			strings.HasPrefix(line, end) && wordStarts(words, len(words)-n) && len(strings.Fields(end)) >= fewest:
			return n
		}
	}
	return 0
}

// wordStarts reports whether what stands at i of s is not part of a longer word.
func wordStarts(s string, i int) bool {
	before, _ := utf8.DecodeLastRuneInString(s[:i])
	return !unicode.IsLetter(before) && !unicode.IsDigit(before)
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

// vague reports whether an answer goes with many others: only a code, or what a program puts before another's error.
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
	plainQuotes    = strings.NewReplacer("’", "'", "‘", "'", "“", `"`, "”", `"`)
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
	return strings.Join(strings.Fields(plainQuotes.Replace(strings.ToLower(line))), " ")
}
