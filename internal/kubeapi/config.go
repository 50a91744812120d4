package kubeapi

import (
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// EmptyError reports that no kubeconfig names a cluster.
type EmptyError struct{ Files []string }

func (e *EmptyError) Error() string {
	return "there is no kubeconfig: " + strings.Join(e.Files, " and ") + " name no cluster"
}

// Load reads a kubeconfig by the rules of kubectl: the given file, else those of $KUBECONFIG, else ~/.kube/config; an
// empty context is the current one. Unlike client-go's deferred loading it never takes the cluster in whose pod the
// program runs: a command that was to ask one cluster must not ask another instead.
func Load(file, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	raw, err := rules.Load()
	if err != nil {
		return nil, err
	}
	if clientcmdapi.IsConfigEmpty(raw) {
		return nil, &EmptyError{rules.GetLoadingPrecedence()}
	}
	return clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
}

// Contexts returns the contexts of a kubeconfig, found as [Load] does, and the namespace of each, which may be empty. There are
// none where it cannot be read.
func Contexts(file string) map[string]string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	raw, err := rules.Load()
	if err != nil {
		return nil
	}
	namespaces := map[string]string{}
	for name, c := range raw.Contexts {
		namespaces[name] = c.Namespace
	}
	return namespaces
}
