package open

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestObservationsHaveAPlaceOfTheirOwn(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"keysets", "observations"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("keysets", "link"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		observations, store string
		want                string // part of the error; empty if they are taken
	}{
		{"file://./observations", "file://./keysets", ""},
		{"file://./keysets/observations", "file://./keysets", ""},
		{"file://./observations", "s3://bucket/keysets", ""},
		{"s3://bucket/observations", "s3://bucket/keysets", ""},
		{"s3://bucket/keysets", "s3://another/keysets", ""},
		{"file://./keysets", "file://./keysets", "in the same place"},
		{"file://./link", "file://./keysets", "in the same place"},
		{"file://./absent", "file://./there/../absent", "in the same place"},
		{"s3://bucket/keysets/", "s3://bucket/keysets?region=eu-central-1", "in the same place"},
		{"s3://bucket?endpoint=https://s3.example.com", "s3://bucket?region=eu-central-1&profile=x", "in the same place"},
		{"kubernetes://keypost", "file://./keysets", ""},
		{"kubernetes://keypost", "kubernetes://keypost", ""},
	} {
		u, err := Parse(tt.observations)
		if err != nil {
			t.Fatal(err)
		}
		store, err := Parse(tt.store)
		if err != nil {
			t.Fatal(err)
		}
		_, err = u.ForObservations(store)
		if _, typed := errors.AsType[*URLError](err); (err == nil) != (tt.want == "") || err != nil && (!typed || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s beside %s: %v; want %q", tt.observations, tt.store, err, tt.want)
		}
	}
}
