package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports holds the command line to its room: what serves the public is not in it.
func TestImports(t *testing.T) {
	refused := map[string]string{
		"github.com/keypost/keypost/issuer/listen": "the command line serves nobody",
		"golang.org/x/crypto/acme/autocert":        "certificates are keypostd's",
		"golang.org/x/crypto/acme":                 "certificates are keypostd's",
		"testing":                                  "it registers its flags in the program",
	}
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 100 {
		t.Fatalf("go list -deps names only %d packages", len(deps))
	}
	for _, d := range deps {
		if why, bad := refused[d]; bad {
			t.Errorf("keypost links %s: %s", d, why)
		}
	}
}
