package rest

import "testing"

// Limits are of bytes, and what is cut stays text: half a letter becomes U+FFFD in JSON, which is longer.
func TestCut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		s     string
		limit int
		want  string
	}{{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aéé", 4, "aé"}, {"aéé", 5, "aéé"}} {
		if got := Cut(tt.s, tt.limit); got != tt.want {
			t.Errorf("%q cut to %d bytes is %q, want %q", tt.s, tt.limit, got, tt.want)
		}
	}
}
