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

// SayUpgrade prints what is left to do in a running cluster with Secrets that no earlier run has written as they are.
func (r *Run) SayUpgrade(all []install.Secret) {
	if len(all) == 0 {
		return
	}
	if secrets := slices.DeleteFunc(slices.Clone(all), func(s install.Secret) bool { return s.Same }); len(secrets) > 0 {
		r.sayApply(secrets)
	} else {
		again := []string{"oc", "apply"} // none but these: the directory may have those of identities that --prune has deleted since
		for _, s := range all {
			again = append(again, "-f", s.File)
		}
		r.Notice("no Secret has changed; to apply them all again: %s", cli.Paste(cli.Quoted(again...)))
	}
	r.Notice("and, for an upgrade to another minor version")
	r.Notice("  oc annotate cloudcredential cluster cloudcredential.openshift.io/upgradeable-to=VERSION --overwrite")
}

// sayApply prints how Secrets get into a running cluster: namespaces first, or a Secret has nowhere to go.
func (r *Run) sayApply(secrets []install.Secret) {
	var namespaces []string
	for _, s := range secrets {
		namespaces = append(namespaces, s.Namespace)
	}
	slices.Sort(namespaces)
	r.Notice("next, for a running cluster: these namespaces must exist")
	for _, ns := range slices.Compact(namespaces) {
		r.Notice("  %s", ns)
	}
	r.Notice("then")
	for _, s := range secrets {
		r.Notice("  %s", cli.Paste("oc apply -f "+cli.Quoted(s.File)))
	}
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
