package fakegcp

import (
	"fmt"
	"regexp"
	"strings"
)

// The expressions that the tests use, of all those of CEL (https://github.com/google/cel-spec): a claim; a comparison of a claim with a text;
// how a claim begins; and a constant.
var (
	comparisonForm = regexp.MustCompile(`^assertion\.(\w+) (==|!=) '([^']*)'$`)
	prefixForm     = regexp.MustCompile(`^assertion\.(\w+)\.startsWith\(["']([^"']*)["']\)$`)
)

// mapped returns the value that a mapping gives an attribute; false if the claim is missing.
func mapped(expression string, claims map[string]any) (string, bool) {
	v, found := claims[strings.TrimPrefix(expression, "assertion.")]
	return fmt.Sprint(v), found
}

// fulfils reports whether claims fulfil a condition. What a claim that is missing would decide is not fulfilled.
func fulfils(condition string, claims map[string]any) bool {
	if m := comparisonForm.FindStringSubmatch(condition); m != nil {
		v, found := claims[m[1]]
		return found && (v == m[3]) == (m[2] == "==")
	}
	if m := prefixForm.FindStringSubmatch(condition); m != nil {
		v, _ := claims[m[1]].(string)
		return strings.HasPrefix(v, m[2])
	}
	return condition == "true"
}

// isCondition reports whether fulfils knows a condition.
func isCondition(s string) bool {
	return s == "true" || s == "false" || comparisonForm.MatchString(s) || prefixForm.MatchString(s)
}
