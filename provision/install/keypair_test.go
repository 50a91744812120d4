package install_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
)

// A key that another user can have put there is not taken; where somebody else can replace it, that is told, once.
func TestCreateKeyPairInADirectoryOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	t.Setenv("SUDO_UID", "")
	const other = 65534
	dir := t.TempDir()
	var said []string
	o := install.Options{Dir: dir, Report: func(e install.Event) {
		if e.Kind == install.Warning {
			said = append(said, e.Text)
		}
	}}
	must(t, install.CreateKeyPair(o))
	if len(said) > 0 {
		t.Errorf("warnings %q", said)
	}
	must(t, os.Chown(dir, other, other))
	must(t, install.CreateKeyPair(o))
	if len(said) != 1 || said[0] != "the directory "+dir+" belongs to another user of this machine (uid 65534), who can replace the cluster's keys and manifests there" {
		t.Errorf("warnings %q", said)
	}
	must(t, os.Chown(filepath.Join(dir, ccoctl.PrivateKeyName), other, other))
	if err := install.CreateKeyPair(o); err == nil || !strings.Contains(err.Error(), ccoctl.PrivateKeyName+" belongs to another user of this machine (uid 65534)") {
		t.Errorf("error %v", err)
	}
}
