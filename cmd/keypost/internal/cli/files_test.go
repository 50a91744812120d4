package cli

import (
	"strings"
	"testing"
)

func TestReadFileIsBounded(t *testing.T) {
	f := &Factory{In: strings.NewReader("12345")}
	if data, err := f.ReadFile("-", 4); err == nil || !strings.Contains(err.Error(), "larger than 4 bytes") {
		t.Errorf("ReadFile = %q, %v", data, err)
	}
	f.In = strings.NewReader("1234")
	if data, err := f.ReadFile("-", 4); err != nil || string(data) != "1234" {
		t.Errorf("ReadFile = %q, %v", data, err)
	}
}
