package text

import (
	"regexp"
	"strings"
)

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*$`) // zsh takes =ls for the path of a program

// Quoted joins words into a line for a POSIX shell.
func Quoted(words ...string) string {
	list := make([]string, len(words))
	for i, w := range words {
		if list[i] = w; !plainWord.MatchString(w) {
			list[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(list, " ")
}
