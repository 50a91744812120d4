package verifycmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/finding"
)

// A URL that is not UTF-8 is a bad URL, and no reason to leave no metrics.
func TestMetricsOfAURLThatIsNoUTF8(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.prom")
	results := []verified{{Issuer: "https://oidc.example.com/\xff", Findings: []row{{Code: "url-form", Severity: finding.Fail}}}}
	if err := writeMetrics(file, results, 0, time.Now()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if want := "keypost_verify_failed{issuer=\"https://oidc.example.com/\uFFFD\"} 1"; err != nil || !strings.Contains(string(got), want) {
		t.Errorf("%v, no %s in\n%s", err, want, got)
	}
}
