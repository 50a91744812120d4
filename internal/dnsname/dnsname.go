// Package dnsname checks names in the two forms of RFC 1123 that Kubernetes asks for. Both have lower-case letters,
// digits and hyphens, and hyphens neither first nor last.
package dnsname

import (
	"regexp"
	"slices"
	"strings"
)

var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// IsLabel reports whether s is a DNS label of at most 63 characters, as the name of a namespace is.
func IsLabel(s string) bool { return len(s) <= 63 && label.MatchString(s) }

// IsSubdomain reports whether s is labels with dots between them, of at most 253 characters altogether, as the names of
// most Kubernetes objects are. As in Kubernetes, one of the labels may be longer than 63 characters.
func IsSubdomain(s string) bool {
	return len(s) <= 253 && !slices.ContainsFunc(strings.Split(s, "."), func(one string) bool { return !label.MatchString(one) })
}
