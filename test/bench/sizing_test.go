package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestSizingPage: docs/sizing.md has the bars and targets that hold here.
func TestSizingPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/sizing.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	all := populations()
	one, ten, hundred := all[0], all[2], all[3]
	for _, want := range []string{
		fmt.Sprintf("| 1 | bar %.0f MiB,", one.resident.bar),
		fmt.Sprintf("| 10,000 | bar %.0f MiB,", ten.resident.bar),
		fmt.Sprintf("| bar %.1f s (", ten.start.bar),
		fmt.Sprintf("| 100,000 | target %.0f MiB | target %.0f MiB | target %.0f s | target %.0f %% |", hundred.resident.target, hundred.resident.target, hundred.start.target, hundred.idle.target),
		fmt.Sprintf("at most %.0f bytes of heap", heapBar),
		fmt.Sprintf("at most %.2f times the CPU", one.ratio.bar),
		fmt.Sprintf("at most %.0f s after it was stored", changeBar),
		fmt.Sprintf("The first pass over 1,000 issuers takes at most %.0f s and %.0f MiB", passBar, memoryBar),
	} {
		if !strings.Contains(page, want) {
			t.Errorf("docs/sizing.md does not have %q", want)
		}
	}
}
