// Package text makes strings from files, servers and users safe to print on a terminal or in a log line, or to paste into
// a shell, and counts nouns.
//
// A terminal obeys control sequences. Bidirectional controls make a line read differently from what its bytes say, and
// invisible characters make two different names look alike. A document, a server's answer or the reason that a
// colleague typed may hold any of them.
package text

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// List joins with "and", and counts what is more than most.
func List(all []string, most int) string {
	if extra := len(all) - most; extra > 0 {
		return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %d more", extra)
	}
	if n := len(all); n > 1 {
		return strings.Join(all[:n-1], ", ") + " and " + all[n-1]
	}
	return strings.Join(all, "")
}

// Count returns a number with its noun, such as "1 key" or "2 keys".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Printable reports whether r can be shown as it is: it is visible, or the ASCII space, and changes nothing around it.
// Controls, bidirectional controls, zero-width characters and line separators are not printable.
func Printable(r rune) bool {
	return r != utf8.RuneError && unicode.IsPrint(r) &&
		// unicode.IsPrint lets these through although nothing is seen of them, such as U+3164 HANGUL FILLER.
		!unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) && !unicode.Is(unicode.Variation_Selector, r)
}

// OneLine returns s as one line of printable characters. Line breaks, tabs and other white space become spaces, and
// whatever else is not printable becomes a question mark, also each byte that is not UTF-8. Of a text that is longer
// than limit characters it returns the beginning and "…". A limit of 0 means none.
func OneLine(s string, limit int) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.TrimSpace(s) {
		if limit > 0 && n == limit {
			b.WriteRune('…')
			break
		}
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case !Printable(r):
			r = '?'
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// Sentence is OneLine with each run of white space as one space, for messages of several lines.
func Sentence(s string, limit int) string {
	return OneLine(strings.Join(strings.Fields(s), " "), limit)
}

// Hide returns s as it may be shown where a server may have sent back the credential that it was sent: not at all if it has that,
// one of its parts between dots, or the beginning of either.
func Hide(s, credential string) string {
	const hidden = "(a text that repeats the credential, and is not shown)"
	if credential != "" && strings.Contains(s, credential) {
		return hidden
	}
	for _, part := range append(strings.Split(credential, "."), credential) {
		const telling = 16 // characters; fewer may be a word of the text
		if part = part[:min(len(part), telling)]; len(part) == telling && strings.Contains(s, part) {
			return hidden
		}
	}
	return s
}

// SameWidth returns s with a question mark in place of every character that is not printable. Spaces stay as they are,
// also at the ends: one may be the difference that is shown.
func SameWidth(s string) string {
	return strings.Map(func(r rune) rune {
		if !Printable(r) {
			return '?'
		}
		return r
	}, s)
}

// LogWriter returns a writer that passes log lines on to w with every unprintable character escaped, as file names and
// input of clients may hold some. Each Write must be whole lines, in which text is quoted as in JSON.
func LogWriter(w io.Writer) io.Writer { return logWriter{w} }

type logWriter struct{ w io.Writer }

func (l logWriter) Write(lines []byte) (int, error) {
	if _, err := l.w.Write(EscapeJSON(lines)); err != nil {
		return 0, err
	}
	return len(lines), nil
}

// EscapeJSON returns the JSON text s with every unprintable character in its strings as an escape. It means the same,
// and may be shown on a terminal. JSON encoders escape controls below U+0020 only.
func EscapeJSON(s []byte) []byte {
	return escape(s, func(r rune) string {
		if first, second := utf16.EncodeRune(r); first != unicode.ReplacementChar {
			return fmt.Sprintf(`\u%04x\u%04x`, first, second)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// EscapeYAML is EscapeJSON for JSON text that is going to be read as YAML, which has no surrogate pairs.
func EscapeYAML(s []byte) []byte {
	return escape(s, func(r rune) string {
		if r > 0xffff {
			return fmt.Sprintf(`\U%08x`, r)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// escape does not escape line breaks and tabs: in JSON they stand between values only.
func escape(s []byte, as func(rune) string) []byte {
	unsafe := func(r rune) bool { return r != '\n' && r != '\t' && !Printable(r) }
	if bytes.IndexFunc(s, unsafe) < 0 {
		return s
	}
	var b bytes.Buffer
	for _, r := range string(s) {
		if unsafe(r) {
			b.WriteString(as(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}
