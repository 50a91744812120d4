package cloudcmd

import (
	"errors"
	"strings"
	"testing"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/provision/install"
)

func TestMigrationHints(t *testing.T) {
	r := &Run{Party: "aws", Move: install.Move{Old: "https://old.example.com"}, To: &install.Options{IssuerURL: "https://new.example.com", Name: "prod-a", Dev: true}}
	for _, tt := range []struct {
		err  error
		hint string
	}{
		{install.Refuse(install.OldKeysUnread, "x"), "--jwks FILE"},
		{install.Refuse(install.WrongCluster, "x"), "--kubeconfig and --context"},
		{&install.Error{Problem: install.KeyNotPublished, KeySet: "prod-a", Err: errors.New("x")}, "key add prod-a --jwks https://old.example.com"},
		{install.Refuse(install.Taken, "x"), "issuer add NAME --url https://new.example.com --jwks https://old.example.com " +
			"--relying-party aws --dev"},
		{&keystore.NotYetError{Gate: gate.GateUndeclared}, "issuer set prod-a --token-lifetime DURATION"},
		{&keystore.NotYetError{Gate: gate.GateSigning}, ""},
		{install.Refuse(install.NoRequests, "x"), ""},
	} {
		hinted, is := errors.AsType[*cli.HintedError](r.MoveHinted(tt.err))
		if is != (tt.hint != "") || is && !strings.Contains(hinted.Hint(&cli.Factory{}), tt.hint) {
			t.Errorf("%v: want the hint %q", tt.err, tt.hint)
		}
	}
	// gcp goes on without the old issuer: a command that reads it fails as this one did
	r.unread = true
	hinted, is := errors.AsType[*cli.HintedError](r.MoveHinted(install.Refuse(install.Taken, "x")))
	if !is || !strings.Contains(hinted.Hint(&cli.Factory{}), "--jwks FILE") {
		t.Errorf("the old issuer cannot be read: %v", hinted)
	}
}
