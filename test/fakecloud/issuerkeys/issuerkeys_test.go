package issuerkeys

import (
	"net/http"
	"testing"
	"time"
)

func TestACopyLapsesAsTheIssuerSays(t *testing.T) {
	t.Parallel()
	for value, kept := range map[string]time.Duration{
		"": 5 * time.Minute, "max-age=60": time.Minute, "public, MAX-AGE=\"60\"": time.Minute, "no-store": 0,
		"max-age=0": 0, "no-cache, max-age=60": 0, "max-age=60, s-maxage=1": time.Minute,
	} {
		if got := Freshness(http.Header{"Cache-Control": {value}}); got != kept {
			t.Errorf("%q: got %v, want %v", value, got, kept)
		}
	}
	if Freshness(http.Header{"Pragma": {"no-cache"}}) != 0 {
		t.Error("Pragma does not count")
	}
}
