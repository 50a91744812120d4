package terminal

import (
	"regexp"
	"strings"
)

// Notice lays out a line of prose, which may be indented and may quote commands. A line that does not fit is wrapped, and each command
// then stands on lines of its own that a POSIX shell takes as they are.
func (s Screen) Notice(line string, commands []string) string {
	if s.Width == 0 {
		return line + "\n"
	}
	body := strings.TrimLeft(line, " ")
	indent := len(line) - len(body)
	if whole := line[:indent] + s.prose(body, commands); width(whole) <= s.Width {
		return s.begin(whole + "\n")
	}
	var b strings.Builder
	at := indent
	for body != "" {
		start, command := firstOf(body, commands)
		if prose := strings.Trim(body[:start], " ,;"); prose != "" {
			b.WriteString(strings.Repeat(" ", at) + Wrap(s.humanized(prose), s.Width, at, indent+len(gap)) + "\n")
		}
		if at = indent + len(gap); command != "" {
			b.WriteString(Shell(command, s.Width, indent+2*len(gap)) + "\n")
		}
		body = body[start+len(command):]
	}
	return s.begin(b.String())
}

// prose humanizes a line but for its commands.
func (s Screen) prose(line string, commands []string) string {
	start, command := firstOf(line, commands)
	if command == "" {
		return s.humanized(line)
	}
	return s.humanized(line[:start]) + command + s.prose(line[start+len(command):], commands)
}

// firstOf returns where the first of the commands stands in a line, and the longest that begins there; the end if there is none.
func firstOf(line string, commands []string) (start int, command string) {
	start = len(line)
	for _, c := range commands {
		if at := strings.Index(line, c); c != "" && at >= 0 && (at < start || at == start && len(c) > len(command)) {
			start, command = at, c
		}
	}
	return start, command
}

// begin colours what a line begins with.
func (s Screen) begin(line string) string {
	for prefix, color := range map[string]string{"keypost: ": red, "warning: ": yellow, "hint: ": green} {
		if after, is := strings.CutPrefix(line, prefix); is {
			return s.paint(color, strings.TrimSpace(prefix)) + " " + after
		}
	}
	return line
}

// Shell breaks a command line between its words, for a POSIX shell, so that no line is longer than width where words allow it.
func Shell(command string, width, indent int) string {
	return strings.Repeat(" ", indent) + fill(shellWords(command), width, [2]int{indent, indent + 4}, ` \`)
}

// shellWords returns the words of a command line, a flag with its value as one.
func shellWords(command string) []string {
	const quoted = `'[^']*'|"(?:\\.|[^"\\])*"|\\.`
	const word = `(?:` + quoted + `|[^ '"\\])+`
	return regexp.MustCompile(`--[^ =]+ (?:`+quoted+`|[^ '"\\-])(?:`+word+`)?|`+word).FindAllString(command, -1)
}

// Shells breaks the lines of an example, which are commands, as Shell does.
func Shells(example string, width int) string {
	lines := strings.Split(example, "\n")
	for i, line := range lines {
		if command := strings.TrimLeft(line, " "); command != "" {
			lines[i] = Shell(command, width, len(line)-len(command))
		}
	}
	return strings.Join(lines, "\n")
}
