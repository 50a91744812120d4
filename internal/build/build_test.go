package build

import (
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	if v := Version(); v == "" || strings.Contains(v, "\n") {
		t.Errorf("version %q", v)
	}
}
