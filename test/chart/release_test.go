//go:build chart && release

package chart

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Two builds of one commit in different directories are equal, byte for byte. Nothing is published or signed.
func TestReleaseIsReproducible(t *testing.T) {
	release := func(from string) (dir, sums string) {
		dir = filepath.Join(t.TempDir(), "source")
		output(t, nil, "git", "clone", "-q", from, dir)
		output(t, nil, "sh", "-c", `cd "$1" && exec "$2" release --snapshot --clean --skip=publish,sign,sbom`, "sh", dir, tool(t, "goreleaser"))
		text := read(t, filepath.Join(dir, "dist/checksums.txt"))
		return dir, string(text)
	}
	dir, first := release("../..")
	if strings.Count(first, "\n") != 8 {
		t.Errorf("archives:\n%s", first)
	}
	for archive, want := range map[string][]string{
		"keypost_*_linux_amd64.tar.gz": {"keypost", "LICENSE", "systemd/keypost-mirror.service", "systemd/keypost-sync-keys.service", "systemd/keypost-sync-keys.timer"}, "keypostd_*_linux_amd64.tar.gz": {"keypostd", "systemd/keypostd.service"},
	} {
		has := strings.Split(output(t, nil, "sh", "-c", "tar -tzf "+dir+"/dist/"+archive), "\n")
		for _, file := range want {
			if !slices.Contains(has, file) {
				t.Errorf("%s does not have %s: %q", archive, file, has)
			}
		}
	}
	if _, second := release(dir); first != second {
		t.Errorf("first\n%ssecond\n%s", first, second)
	}
}
