package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"go.yaml.in/yaml/v2"

	"github.com/keypost/keypost/internal/text"
)

// mergeKey takes the members of another mapping over, to YAML 1.1 only.
const mergeKey = "<<"

var (
	errOddNumber = errors.New("which YAML 1.1 and 1.2 read differently; " +
		"write it in decimal without leading zeros, _ or exponent, or in quotes if it is text")
	errOddWord = errors.New("which is true or false to YAML 1.1 and text to 1.2; write true or false, or put it in quotes if it is text")
	// errOddMasked is of a text that somebody has written to confuse mask, with the characters that it uses.
	errOddMasked = fmt.Errorf("it has a number or word %w", errOddNumber)
	errMerge     = errors.New("it has the merge key <<, which YAML 1.2 does not know; write the members themselves, or put it in quotes")
)

// CheckReaders returns an error if YAML 1.1 and 1.2 read a number, word or key of data differently. It reads data only if
// one of them may, and returns the error of that too.
func CheckReaders(data []byte) error {
	masked := mask(data, false)
	if masked == nil || isJSON(data) {
		return nil
	}
	var tree any
	if err := yaml.Unmarshal(data, &tree); err != nil {
		return fmt.Errorf("it is not valid YAML: %s", reason(err))
	}
	return compare(tree, masked)
}

// compare returns an error if tree has scalars that are no text, or merged members, and masked has text in their place.
// The reader's tree has only the values, not how they were written: a scalar that was in quotes or part of a longer text
// is text in both.
func compare(tree any, masked []byte) error {
	var other any
	if yaml.Unmarshal(masked, &other) != nil {
		return errOddMasked
	}
	var before, after census
	before.count(tree)
	after.count(other)
	if before.scalars == after.scalars && before.merges == after.merges {
		return nil
	}
	if after.first == "" {
		return errOddMasked
	}
	switch name := unmask(after.first); {
	case name == mergeKey:
		return errMerge
	case isOddWord(name):
		return fmt.Errorf("it has the word %s, %w", name, errOddWord)
	default:
		return fmt.Errorf("it has the number %s, %w", text.OneLine(name, maxReason), errOddNumber)
	}
}

// mask returns a YAML text in which no number, word or key is odd (isOdd): each has become text, wherever one may stand,
// since another character replaces its first one. It returns nil if there are none. It may replace characters in quotes,
// comments and longer texts too, where that makes no difference. It leaves words that are true or false if words is true.
func mask(data []byte, words bool) []byte {
	var masked []byte
	done := 0
	for i, c := range data {
		if !firstOfOdd[c] || words && c >= 'A' || !mayBegin(data, i) || !isOdd(data[i:]) {
			continue
		}
		masked = utf8.AppendRune(append(masked, data[done:i]...), maskOf+rune(c))
		done = i + 1
	}
	if done == 0 {
		return nil
	}
	return append(masked, data[done:]...)
}

// maskOf is added to an ASCII character for one of a private use area of Unicode.
const maskOf = 0xE000

// isMasked reports whether mask may have replaced the first character of s.
func isMasked(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return r >= maskOf && r < maskOf+utf8.RuneSelf
}

// unmask returns s as it was before mask replaced its first character.
func unmask(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	return string(r-maskOf) + s[size:]
}

// firstOfOdd and inNumber are tables since every byte of every document is looked up in the first.
var firstOfOdd, inNumber = setOf("0123456789-+.yYnNoO<"), setOf("0123456789abcdefABCDEFxXoO-+._") //nolint:gochecknoglobals // constant tables

func setOf(characters string) (is [256]bool) {
	for _, c := range []byte(characters) {
		is[c] = true
	}
	return is
}

// mayBegin reports whether a scalar without quotes may begin at i.
func mayBegin(data []byte, i int) bool {
	if i == 0 {
		return true
	}
	switch data[i-1] {
	case ' ', '\t', '\n', '\r', '[', '{', ',', '?':
		return true
	case ':':
		return i == 1 || data[i-2] < '0' || data[i-2] > '9' // not in a time
	}
	return i == len(byteOrderMark) && string(data[:i]) == byteOrderMark
}

const byteOrderMark = "\ufeff"

// isOdd reports whether a number, word or key that two readers may read differently is all that stands at the start of
// data up to a character that may end it.
func isOdd(data []byte) bool {
	n := 0
	switch c := data[0]; {
	case c == '<':
		if !bytes.HasPrefix(data, []byte(mergeKey)) {
			return false
		}
		n = len(mergeKey)
	case c >= 'A':
		for n < len(data) && n <= len("yes") && (data[n]|0x20 >= 'a' && data[n]|0x20 <= 'z') {
			n++
		}
		if !isOddWord(string(data[:n])) {
			return false
		}
	default:
		for n < len(data) && inNumber[data[n]] {
			n++
		}
		if !isOddNumber(data[:n]) {
			return false
		}
	}
	rest := bytes.TrimLeft(data[n:], " \t")
	return len(rest) == 0 || bytes.IndexByte([]byte("\r\n#:,?[]{}"), rest[0]) >= 0
}

// isOddNumber reports whether YAML 1.1 and 1.2 read a number differently. 010 is 8 to the first and 10 to the second; 1_0 is
// 10 to the first and text to the second, as is -0x1; 1e3 and 0.1e2 are text to the first, which wants a point and a sign
// (1.0e+3). It may report true for what is no number.
func isOddNumber(number []byte) bool {
	digits, signed := number, number[0] == '+' || number[0] == '-'
	if signed {
		digits = number[1:]
	}
	if len(digits) < 2 {
		return false
	}
	if bytes.IndexByte(digits, '_') >= 0 {
		return true
	}
	if digits[0] == '0' && digits[1] != '.' && digits[1]|0x20 != 'e' {
		return signed || digits[1] != 'x'
	}
	e := bytes.IndexAny(digits, "eE")
	return e >= 0 && (bytes.IndexByte(digits[:e], '.') < 0 || e+1 == len(digits) || digits[e+1] != '+' && digits[e+1] != '-')
}

// isOddWord reports whether YAML 1.1 reads s as true or false, and 1.2 as text.
func isOddWord(s string) bool {
	switch s {
	case "y", "Y", "yes", "Yes", "YES", "n", "N", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF":
		return true
	}
	return false
}

// census counts the scalars of a tree that are no text.
type census struct {
	scalars int
	merges  int    // keys that would be merge keys without quotes: the reader's tree has none of those that are
	first   string // in the order of the alphabet, of what mask may have replaced
}

func (c *census) count(node any) {
	switch n := node.(type) {
	case nil:
	case string:
		if isMasked(n) && (c.first == "" || n < c.first) && isOdd([]byte(unmask(n))) {
			c.first = n
		}
	case []any:
		for _, v := range n {
			c.count(v)
		}
	case map[any]any:
		for k, v := range n {
			if key, isText := k.(string); isText {
				if key == mergeKey || isMasked(key) && unmask(key) == mergeKey {
					c.merges++
				}
			}
			c.count(k)
			c.count(v)
		}
	default:
		c.scalars++
	}
}
