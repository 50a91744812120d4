// Package dnsname checks names in the two forms of RFC 1123 that Kubernetes asks for. Both have lower-case letters,
// digits and hyphens, and hyphens neither first nor last.
package dnsname

import "strings"

// IsLabel reports whether s is a DNS label of at most 63 characters, as the name of a namespace is.
func IsLabel(s string) bool { return len(s) <= 63 && isLabel(s) }

// IsSubdomain reports whether s is labels with dots between them, of at most 253 characters altogether, as the names of
// most Kubernetes objects are. As in Kubernetes, one of the labels may be longer than 63 characters.
func IsSubdomain(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

func isLabel(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
