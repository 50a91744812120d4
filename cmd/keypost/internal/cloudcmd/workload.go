package cloudcmd

import (
	"slices"
	"strings"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/provision/install"
)

// ServiceAccounts parses the service accounts of a workload, each NAMESPACE/NAME. A cloud would take a wildcard literally, and the
// identity would work for nobody.
func ServiceAccounts(values []string) ([]install.ServiceAccount, error) {
	var accounts []install.ServiceAccount
	for _, v := range values {
		namespace, name, _ := strings.Cut(v, "/")
		if !dnsname.IsLabel(namespace) || !dnsname.IsSubdomain(name) {
			return nil, cli.Usagef("--service-account %q is not NAMESPACE/NAME", v)
		}
		accounts = append(accounts, install.ServiceAccount{Namespace: namespace, Name: name})
	}
	return accounts, nil
}

// Listed returns Secrets for a result: programs find a list in it, also an empty one.
func Listed(secrets []install.Secret) []install.Secret { return append([]install.Secret{}, secrets...) }

// SayUpgrade prints what is left to do in a running cluster with Secrets: with those that no earlier run has written as they are, or with
// all of them again. Others that are in the directory may be those of identities that --prune has deleted since.
func (r *Run) SayUpgrade(all []install.Secret) {
	if len(all) == 0 {
		return
	}
	secrets := slices.DeleteFunc(slices.Clone(all), func(s install.Secret) bool { return s.Same })
	again := len(secrets) == 0
	if again {
		secrets = all
	}
	apply := []string{"oc", "apply"}
	var namespaces []string
	for _, s := range secrets {
		apply, namespaces = append(apply, "-f", s.File), append(namespaces, s.Namespace)
	}
	slices.Sort(namespaces)
	if again {
		r.Notice("no Secret has changed; to apply them all again: %s", cli.Paste(cli.Quoted(apply...)))
	} else {
		r.Notice("next, for a running cluster, where these namespaces must exist (%s):", strings.Join(slices.Compact(namespaces), " "))
		r.Notice("  %s", cli.Paste(cli.Quoted(apply...)))
	}
	r.Notice("and, for an upgrade to another minor version")
	r.Notice("  oc annotate cloudcredential cluster cloudcredential.openshift.io/upgradeable-to=VERSION --overwrite")
}

// EnvVar is a variable of the environment of an operator's pods.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// PrintIdentity prints what the administrator of an operator needs to use an identity in the cloud: the variables of its Subscription's
// spec.config.env, after lines of their own. v is all of it for programs.
//
// https://olm.operatorframework.io/docs/advanced-tasks/configure-operators/
func (r *Run) PrintIdentity(v any, env []EnvVar, lines ...string) error {
	return r.Print(v, func(w *terminal.Table) {
		for _, l := range lines {
			w.Row(l)
		}
		for _, e := range env {
			w.Row(e.Name + "=" + e.Value)
		}
	})
}
