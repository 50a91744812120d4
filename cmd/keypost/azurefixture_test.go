package main

import (
	"crypto/x509"
	"fmt"
	"maps"
	"path"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keypost/keypost/test/fakeazure"
)

type azureKey struct{}

// fakeSubscription is the Azure subscription that a script has started.
type fakeSubscription struct{ *fakeazure.Server }

// startAzure plays an Azure subscription from here on: fakeazure [slow]. All commands of the script talk to it, at Microsoft's own
// names. Its Entra reaches what serve has published, and takes its CA for a public one.
func (a accounts) startAzure(ts *testscript.TestScript, args []string) {
	o := fakeazure.Options{VaryCase: true, Roots: x509.NewCertPool()}
	if ts.Getenv("CA") != "" {
		o.Roots.AppendCertsFromPEM([]byte(ts.ReadFile(ts.Getenv("CA"))))
	}
	o.Dial = dialing("127.0.0.1:" + ts.Getenv("PORT"))
	s := fakeazure.Start(a.t, o)
	setenv(ts, append(s.Env(), s.Tunnel(a.t)...)...)
	ts.Value(azureKey{}).(*fakeSubscription).Server = s
}

func subscriptionOf(ts *testscript.TestScript) *fakeazure.Server {
	s := ts.Value(azureKey{}).(*fakeSubscription).Server
	if s == nil {
		ts.Fatalf("fakeazure was not started")
	}
	return s
}

func describeAzure(s fakeazure.State) string {
	var b strings.Builder
	for _, g := range s.Groups {
		fmt.Fprintln(&b, "group", g.Name, g.Location, g.Tags)
	}
	for _, i := range s.Identities {
		fmt.Fprintln(&b, "identity", i.Name, i.Tags)
	}
	for _, c := range s.Credentials {
		fmt.Fprintln(&b, "credential", c.Name, c.Issuer, c.Subject, c.Audiences)
	}
	for _, d := range s.Definitions {
		fmt.Fprintln(&b, "role", d.RoleName, d.Description, d.Permissions)
	}
	for _, a := range s.Assignments {
		fmt.Fprintln(&b, "assignment", strings.ToLower(a.Scope), a.PrincipalType, strings.ToLower(a.Principal), strings.ToLower(path.Base(a.Role)))
	}
	return b.String()
}

// askAzure changes the subscription behind keypost's back, as somebody at the portal would: azask METHOD PATH VERSION [BODY]
func askAzure(ts *testscript.TestScript, args []string) {
	s := subscriptionOf(ts)
	ts.Check(s.Ask(args[0], args[1], args[2], strings.Join(args[3:], "")))
	s.ResetCalls()
}

// tagAzureGroup gives a resource group one tag more, as another program would: aztag GROUP NAME VALUE
func tagAzureGroup(ts *testscript.TestScript, args []string) {
	s := subscriptionOf(ts)
	for _, g := range s.State().Groups {
		if !strings.EqualFold(g.Name, args[0]) {
			continue
		}
		tags := maps.Clone(g.Tags)
		tags[args[1]] = args[2]
		ts.Check(s.Ask("PATCH", g.ID, "2021-04-01", asJSON(map[string]any{"tags": tags})))
		s.ResetCalls()
		return
	}
	ts.Fatalf("no group %s", args[0])
}
