// Package terminal lays out what a person reads on a screen: lines and tables fit its width, times are relative, key IDs are
// short, and commands stay whole for a shell. It changes nothing of what goes to a pipe or a file.
package terminal

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// Screen is what an output is laid out for. The zero Screen is not a terminal.
type Screen struct {
	Width int       // in columns; 0 if it is not a terminal
	Color bool      // whether colour helps
	Whole bool      // whether key IDs are printed whole
	Now   time.Time // what times are relative to: one reading of the clock for a whole output
}

// Of returns the screen behind w. TERM=dumb counts as no terminal, and NO_COLOR (https://no-color.org) means no colour.
func Of(w io.Writer, getenv func(string) string) Screen {
	file, is := w.(*os.File)
	if !is || getenv("TERM") == "dumb" || !term.IsTerminal(int(file.Fd())) {
		return Screen{}
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	return Screen{Width: max(width, 40), Color: getenv("NO_COLOR") == "", Now: time.Now()}
}

// The colours of ECMA-48, SGR.
const (
	red, green, yellow = "31", "32", "33"
	reset              = "\x1b[0m"
)

func (s Screen) paint(color, text string) string {
	if !s.Color {
		return text
	}
	return "\x1b[" + color + "m" + text + reset
}

// kidLength is the length of a computed key ID: a SHA-256 in unpadded base64url. A command takes any beginning of 8 characters.
const kidLength, kidShown = 43, 12

var (
	stamp = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	word  = regexp.MustCompile(`[A-Za-z0-9_./:@%=-]+`)
)

// humanized returns text for a person: computed key IDs are short, and times are relative.
func (s Screen) humanized(text string) string {
	if parsed, err := time.Parse(time.RFC3339, text); err == nil {
		return s.distance(parsed) + " (" + s.day(parsed) + ")"
	}
	text = stamp.ReplaceAllStringFunc(text, func(found string) string {
		at, err := time.Parse(time.RFC3339, found)
		if err != nil {
			return found
		}
		return s.day(at) + ", " + s.distance(at)
	})
	if s.Whole {
		return text
	}
	return word.ReplaceAllStringFunc(text, func(found string) string {
		kid := strings.TrimRight(found, ":.")
		if !isKID(kid) {
			return found
		}
		return kid[:kidShown] + found[len(kid):]
	})
}

// isKID reports whether a word is a computed key ID rather than a name of its length: a hash has digits and letters of both cases.
func isKID(word string) bool {
	return len(word) == kidLength && !strings.ContainsAny(word, "./:@%=") && strings.ContainsAny(word, "0123456789") &&
		strings.ToLower(word) != word && strings.ToUpper(word) != word
}

// day returns a time to the minute, with the day of the week where that is enough.
func (s Screen) day(at time.Time) string {
	if d := at.Sub(s.Now).Abs(); d < 6*24*time.Hour {
		return at.UTC().Format("Mon 15:04 UTC")
	}
	return at.UTC().Format("2006-01-02 15:04 UTC")
}

// distance returns how far a time is from now.
func (s Screen) distance(at time.Time) string {
	d := at.Sub(s.Now)
	switch {
	case d.Abs() < time.Second, d < 0 && d > -time.Minute:
		return "now"
	case d > 0:
		return "in " + Duration(d)
	}
	return Duration(-d) + " ago"
}

// Duration returns a duration as people say it: "12s", "35m", "25h13m" or "12d".
func Duration(d time.Duration) string {
	minutes := d.Round(time.Minute) / time.Minute
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case minutes < 60:
		return fmt.Sprintf("%dm", minutes)
	case minutes%60 == 0 && minutes < 48*60:
		return fmt.Sprintf("%dh", minutes/60)
	case minutes < 48*60:
		return fmt.Sprintf("%dh%dm", minutes/60, minutes%60)
	}
	return fmt.Sprintf("%dd", d.Round(24*time.Hour)/(24*time.Hour))
}

// Wrap breaks text at spaces into lines of at most width columns. The first begins at column first, the others at column rest. A word
// that is longer than a line stays whole.
func Wrap(text string, width, first, rest int) string {
	return fill(strings.Fields(text), width, [2]int{first, rest}, "")
}

// fill writes words into lines of at most width columns. The first line begins at the first of the columns, the others at the second.
// Each line but the last ends with end.
func fill(words []string, width int, columns [2]int, end string) string {
	var b strings.Builder
	column := columns[0]
	for i, word := range words {
		room := width
		if i < len(words)-1 {
			room -= len(end)
		}
		size := runewidth.StringWidth(word)
		switch {
		case i == 0:
		case column+1+size <= room:
			b.WriteByte(' ')
			column++
		default:
			b.WriteString(end + "\n" + strings.Repeat(" ", columns[1]))
			column = columns[1]
		}
		b.WriteString(word)
		column += size
	}
	return b.String()
}

// Paragraphs wraps text whose paragraphs stand between empty lines. A line that is indented stays as it is.
func Paragraphs(text string, width int) string {
	var lines []string
	flow := false // the latest line is prose that the next one goes on
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		prose := line != "" && line[0] != ' '
		if flow && prose {
			lines[len(lines)-1] += " " + line
			continue
		}
		lines, flow = append(lines, line), prose
	}
	for i, line := range lines {
		if line != "" && line[0] != ' ' {
			lines[i] = Wrap(line, width, 0, 0)
		}
	}
	return strings.Join(lines, "\n")
}
