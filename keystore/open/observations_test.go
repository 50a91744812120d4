package open

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
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
	if err := os.Symlink(".", "here"); err != nil {
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
		{"s3://bucket/observations", "s3://bucket", ""},
		{"s3://bucket/keysets", "s3://another/keysets", ""},
		{"s3://bucket/keysets", "file://./keysets", ""},
		{"file://./keysets", "file://./keysets", "in the same place"},
		{"file://./keysets/", "file://./keysets", "in the same place"},
		{"file://./link", "file://./keysets", "in the same place"},
		{"file://./x/../keysets", "file://./keysets", "in the same place"},
		{"file://./here/absent", "file://./absent", "in the same place"},
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
		err = u.CheckObservations(store)
		if _, typed := errors.AsType[*URLError](err); (err == nil) != (tt.want == "") || err != nil && (!typed || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s beside %s: %v; want %q", tt.observations, tt.store, err, tt.want)
		}
	}
}

func TestObservationsAreKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "observations")
	u, err := Parse("file://" + dir)
	if err != nil {
		t.Fatal(err)
	}
	store, err := Parse("kubernetes://keypost")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Observations(t.Context(), store); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before the directory was made: %v", err)
	}
	if _, err := u.CreateObservations(t.Context(), u); err == nil {
		t.Error("it was made beside a store that is the same")
	}
	b, err := u.CreateObservations(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	p := observation.Subject{Issuer: "https://oidc.example.com/prod-a"}
	if _, err := observation.NewStore(b).Add(t.Context(), "prod-a", p, observation.Look{End: time.Unix(1e9, 0)}); err != nil {
		t.Fatal(err)
	}
	b, err = u.Observations(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := observation.NewStore(b).Load(t.Context(), "prod-a", p); err != nil {
		t.Error(err)
	}
	if list, err := keystore.NewStore(b).List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}
