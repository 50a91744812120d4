package finding

import (
	"slices"
	"testing"
)

// TestReport: what several addresses say alike is one finding with all of them, and what is said twice is said once.
func TestReport(t *testing.T) {
	var r Report
	r.OK("url", "%s is good", "it")
	r.Warn("clock-off", "%d", 7)
	r.Warn("clock-off", "7")
	r.FailWith("tls-expired", "do it", "evidence")
	for _, address := range []string{"a", "b", "a"} {
		r.AddAt(CauseOf("dns-none").Finding(Fail, "none", ""), address)
	}
	r.AddAt(CauseOf("dns-none").Finding(Fail, "other", ""), "a")
	var got []string
	for _, f := range r.Sorted() {
		got = append(got, f.Code+" "+string(f.Severity)+" "+f.Message()+" "+f.Repair)
	}
	off, none := CauseOf("clock-off").Repair, CauseOf("dns-none").Repair
	want := []string{"dns-none fail at a and b: none " + none, "dns-none fail at a: other " + none, "tls-expired fail evidence do it", "clock-off warn 7 " + off, "url ok it is good "}
	if !slices.Equal(got, want) {
		t.Errorf("sorted\n%q, want\n%q", got, want)
	}
}
