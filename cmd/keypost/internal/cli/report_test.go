package cli

import (
	"testing"
)

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
