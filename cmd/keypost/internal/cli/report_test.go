package cli

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func TestMessages(t *testing.T) {
	one, two := errors.New("one"), errors.New("two\nlines")
	for _, tt := range []struct {
		err  error
		want []string
	}{
		{one, []string{"one"}},
		{two, []string{"two\nlines"}},
		{errors.Join(one, two), []string{"one", "two\nlines"}},
		{WithHint(Usage(errors.Join(one, errors.Join(two))), "x"), []string{"one", "two\nlines"}},
		{fmt.Errorf("both: %w and %w", one, two), []string{"both: one and two\nlines"}},
		{fmt.Errorf("read: %w", one), []string{"read: one"}},
		{WithHint(fmt.Errorf("read: %w", errors.Join(one, fmt.Errorf("file: %w", errors.Join(one, two)))), "x"), []string{"read: one", "read: file: one", "read: file: two\nlines"}},
	} {
		if got := messages(tt.err); !slices.Equal(got, tt.want) {
			t.Errorf("messages(%v) = %q, want %q", tt.err, got, tt.want)
		}
	}
}

// Many things that fail for one reason are one line, with their number.
func TestMessagesAreToldOnce(t *testing.T) {
	t.Parallel()
	if got, want := told([]string{"a", "b", "a", "c", "a", "c"}), []string{"a (3 times)", "b", "c (2 times)"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Each of joined errors says what to do about it, once.
func TestHints(t *testing.T) {
	f, plain := &Factory{}, errors.New("it failed")
	one, two := WithHint(plain, "do %d", 1), WithHint(plain, "do %d", 2)
	for _, tt := range []struct {
		err  error
		want []string
	}{
		{nil, nil},
		{plain, nil},
		{one, []string{"do 1"}},
		{Usage(one), []string{"do 1"}},
		{errors.Join(one, plain, fmt.Errorf("a: %w", errors.Join(plain, two)), fmt.Errorf("b: %w", one)), []string{"do 1", "do 2"}},
		{WithHint(errors.Join(one, two), "do both"), []string{"do both"}},
	} {
		if got := f.hints(tt.err); !slices.Equal(got, tt.want) {
			t.Errorf("hints(%v) = %q, want %q", tt.err, got, tt.want)
		}
	}
}

func TestRedacted(t *testing.T) {
	for s, want := range map[string]string{
		"store s3://user:pass@bucket/x is odd":    "store s3://…@bucket/x is odd",
		"https://user@example.com/":               "https://…@example.com/",
		"https://oidc.example.com/a@b":            "https://oidc.example.com/a@b",
		`Get "https://u:p@h/x": refused`:          `Get "https://…@h/x": refused`,
		"arn:aws:sts::1:assumed-role/a/me@x":      "arn:aws:sts::1:assumed-role/a/me@x",
		"alice@laptop changed https://x.example.": "alice@laptop changed https://x.example.",
	} {
		if got := redacted(s); got != want {
			t.Errorf("redacted(%q) = %q, want %q", s, got, want)
		}
	}
}
