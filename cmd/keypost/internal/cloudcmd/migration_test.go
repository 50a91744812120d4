package cloudcmd

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/install"
)

// What is wrong with the flags of a move is said in this order: its issuers, the cluster, its end.
func TestMigrationChecks(t *testing.T) {
	const old, next = "https://old.example.com", "https://oidc.example.com/prod-a"
	for _, tt := range []struct {
		name   string
		move   install.Move
		finish bool
		err    string
	}{
		{name: "good", move: install.Move{Old: old}},
		{name: "good to its end", move: install.Move{Old: old, Cluster: cluster.Access{Kubeconfig: "k", Context: "c"}}, finish: true},
		{name: "no issuer", err: `--from-issuer-url "" is not an issuer URL`},
		{name: "not https", move: install.Move{Old: "http://old.example.com"}, err: "is not an issuer URL: it begins with https://"},
		{name: "a query", move: install.Move{Old: old + "?a"}, err: "neither query nor fragment"},
		{name: "the same issuer", move: install.Move{Old: next}, err: "a cluster that keeps its issuer needs no new provider"},
		{name: "a context of nothing", move: install.Move{Old: old, Cluster: cluster.Access{Context: "c"}}, finish: true, err: "--context needs --kubeconfig"},
		{name: "an end that nobody shows", move: install.Move{Old: old}, finish: true, err: "that none signs as " + old + " any more"},
	} {
		m := Migration{Move: tt.move, Finish: tt.finish}
		err := cmp.Or(m.CheckIssuers(next, "provider"), m.CheckCluster(), m.CheckFinish())
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
		}
	}
}

// --finish is for clouds that trust two issuers at once, and so have an end of the move to ask for.
func TestMigrationWithoutEnd(t *testing.T) {
	for finish, usage := range map[string]string{"": "how long its tokens live", "take OLD away": "to see whether it was switched"} {
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		new(Migration).Define(fs, finish)
		if has := fs.Lookup("finish") != nil; has != (finish != "") || !strings.HasSuffix(fs.Lookup("kubeconfig").Usage, usage) {
			t.Errorf("%q: --finish %t, --kubeconfig %q", finish, has, fs.Lookup("kubeconfig").Usage)
		}
	}
}

func TestMigrationHints(t *testing.T) {
	m := Migration{Move: install.Move{Old: "https://old.example.com"}}
	f := &Flags{Party: "aws", To: &install.Options{IssuerURL: "https://new.example.com", Name: "prod-a", Dev: true}}
	for _, tt := range []struct {
		err  error
		hint string
	}{
		{install.Refuse(install.OldKeysUnread, "x"), "--jwks FILE"},
		{install.Refuse(install.WrongCluster, "x"), "--kubeconfig and --context"},
		{&install.Error{Problem: install.KeyNotPublished, KeySet: "prod-a", Err: errors.New("x")}, "key add prod-a --jwks https://old.example.com"},
		{&install.Error{Problem: install.KeyNotPublished, KeySet: "prod-a", Spent: true, Err: errors.New("x")}, "the old issuer's keys without it: --jwks FILE"},
		{&install.Error{Problem: install.Taken, Free: "prod-a-2", Err: errors.New("x")}, "issuer add prod-a-2 --url https://new.example.com --jwks https://old.example.com " +
			"--relying-party aws --dev"},
		{&keystore.NotYetError{Gate: gate.GateUndeclared}, "issuer set prod-a --token-lifetime DURATION"},
		{&keystore.NotYetError{Gate: gate.GateSigning}, ""},
		{install.Refuse(install.NoRequests, "x"), ""},
	} {
		hinted, is := errors.AsType[*cli.HintedError](m.Hinted(f, tt.err))
		if is != (tt.hint != "") || is && !strings.Contains(hinted.Hint(&cli.Factory{}), tt.hint) {
			t.Errorf("%v: want the hint %q", tt.err, tt.hint)
		}
	}
}
