package issuercmd

import (
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer"
)

func TestServingProblem(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stored listRow
		served issuer.Status
		known  bool
		want   string
	}{
		{"as it should be", listRow{Generation: 2}, issuer.Status{Generation: 2, Served: true}, true, ""},
		{"withdrawn", listRow{Generation: 2, Withdrawn: true}, issuer.Status{Generation: 2}, true, ""},
		{"never read", listRow{Generation: 1}, issuer.Status{}, false, "has not read it"},
		{"rejected", listRow{Generation: 1}, issuer.Status{Generation: 2, Served: true, Rejected: "older_generation", Message: "m"}, true, "rejected (older_generation): m"},
		{"behind", listRow{Generation: 3}, issuer.Status{Generation: 2, Served: true}, true, "serves generation 2"},
		{"not served", listRow{Generation: 2}, issuer.Status{Generation: 2}, true, "does not serve it"},
	} {
		if got := servingProblem(tt.stored, tt.served, tt.known); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
