package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
)

// One computed key ID in 64 begins with a hyphen.
func TestDashedKID(t *testing.T) {
	full := "--" + strings.Repeat("x", 41)
	for _, tt := range []struct{ args, want string }{
		{"key promote prod-a -3oPKmtE", "key promote prod-a -- -3oPKmtE"},
		{"key promote prod-a -3oPKmtE --force --why -x", "key promote prod-a --force --why -x -- -3oPKmtE"},
		{"key retire prod-a " + full + " --why x", "key retire prod-a --why x -- " + full},
		{"-verbose key retire prod-a 3oPKmtEx", "-verbose key retire prod-a 3oPKmtEx"},
		{"key retire prod-a -3oPKmtE-_ --why -abcdefgh", "key retire prod-a --why -abcdefgh -- -3oPKmtE-_"},
		{"issuer accept prod-a --keep -3oPKmtE --gone=-3oPKmtE", "issuer accept prod-a --keep -3oPKmtE --gone=-3oPKmtE"},
		{"key list prod-a -ojson", "key list prod-a -ojson"},
		{"key list prod-a -otable", "key list prod-a -otable"},
		{"key remove prod-a --never-signed -3oPKmtE", "key remove prod-a --never-signed -- -3oPKmtE"},
		{"issuer show -3oPKmtE", "issuer show -3oPKmtE"},
		{"key remove prod-a -- -3oPKmtE", "key remove prod-a -- -3oPKmtE"},
		{"key promote prod-a 3oPKmtEx", "key promote prod-a 3oPKmtEx"},
		{"", ""},
	} {
		got := cli.DashedKID(newRoot(&cli.Factory{}), strings.Fields(tt.args))
		if want := strings.Fields(tt.want); !slices.Equal(got, want) {
			t.Errorf("DashedKID(%q) = %q, want %q", tt.args, got, want)
		}
	}
}
