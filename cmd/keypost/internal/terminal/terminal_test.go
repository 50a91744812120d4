package terminal

import (
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/keypost/keypost/internal/text"
)

// A shell reads the same words of a command however narrow the screen is.
func TestShellKeepsWords(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"keypost", "--why", "a key's end", `back\slash`, "two  spaces", "--url", "https://oidc.example.com/a", "", "-x", "'", `"q"`, "a;b|c"}
	for range 40 {
		words := make([]string, 1+random.IntN(12))
		for i := range words {
			words[i] = pieces[random.IntN(len(pieces))]
		}
		shown := Shell(text.Quoted(words...), 40+random.IntN(60), 4)
		out, err := exec.Command("sh", "-c", `printf '%s\n' `+strings.TrimLeft(shown, " ")).Output()
		if err != nil || string(out) != strings.Join(words, "\n")+"\n" {
			t.Errorf("%q became %q, %v, from\n%s", words, out, err, shown)
		}
	}
}

// Wrapping loses no word, and no line is wider than the screen unless it is one word.
func TestWrap(t *testing.T) {
	t.Parallel()
	prose := strings.Repeat("a word or two, 日本語 and a-very-long-name-that-is-wider-than-any-line-here ", 5)
	for width := 20; width < 90; width++ {
		wrapped := Wrap(prose, width, 3, 5)
		if !slices.Equal(strings.Fields(wrapped), strings.Fields(prose)) {
			t.Fatalf("at %d words are lost:\n%s", width, wrapped)
		}
		for i, line := range strings.Split(wrapped, "\n") {
			if i == 0 {
				line = "   " + line
			}
			if runewidth.StringWidth(line) > width && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("at %d too wide: %s", width, line)
			}
		}
	}
}

// Times are relative, and computed key IDs short; what only looks like one is left alone.
func TestHumanized(t *testing.T) {
	t.Parallel()
	const kid = "gwnEQfJWw5S3-Vzq8G4bC0OspTWLHgY_psYkCJ8JibQ"
	s := Screen{Width: 80, Now: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)}
	for shown, want := range map[string]string{
		"2026-03-03T13:13:00Z":                     "in 25h13m (Tue 13:13 UTC)",
		"2026-03-02T11:55:00Z":                     "5m ago (Mon 11:55 UTC)",
		"2026-03-02T11:59:30Z":                     "now (Mon 11:59 UTC)",
		"2026-06-01T00:00:00Z":                     "in 91d (2026-06-01 00:00 UTC)",
		"since 2026-03-02T10:00:00Z, and on":       "since Mon 10:00 UTC, 2h ago, and on",
		"key " + kid + ": new":                     "key gwnEQfJWw5S3: new",
		"https://oidc.example.com/" + kid:          "https://oidc.example.com/" + kid,
		strings.ToLower(kid):                       strings.ToLower(kid),
		"2026-03-02T10:00:00Z is not a whole cell": "Mon 10:00 UTC, 2h ago is not a whole cell",
	} {
		if got := s.humanized(shown); got != want {
			t.Errorf("%q: %q, want %q", shown, got, want)
		}
	}
	if s.Whole = true; s.humanized(kid) != kid {
		t.Error("a key ID is cut with -o wide")
	}
}
