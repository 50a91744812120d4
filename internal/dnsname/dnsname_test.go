package dnsname

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func names() []string {
	names := []string{
		"a", "a-b", "0", "a.b", "a.b-c.d", "xn--bcher-kva", "", "-", "-a", "a-", "A", "a_b", "ä", "a b", "a\n", "\na", ".", ".a", "a.", "a..b", "a.-b", "a-.b",
	}
	for _, n := range []int{62, 63, 64, 252, 253, 254} {
		long := strings.Repeat("a", n)
		names = append(names, long, long[2:]+".b")
	}
	return names
}

func TestNames(t *testing.T) {
	for _, s := range names() {
		compare(t, s)
	}
}

// compare holds both forms against Kubernetes' own.
func compare(t *testing.T, s string) {
	t.Helper()
	if got, want := IsLabel(s), len(validation.IsDNS1123Label(s)) == 0; got != want {
		t.Errorf("IsLabel(%q) is %t, and %t in Kubernetes", s, got, want)
	}
	if got, want := IsSubdomain(s), len(validation.IsDNS1123Subdomain(s)) == 0; got != want {
		t.Errorf("IsSubdomain(%q) is %t, and %t in Kubernetes", s, got, want)
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range names() {
		f.Add(s)
	}
	f.Fuzz(compare)
}
