package kubeapi

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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

// MaxKubeconfig bounds a kubeconfig, in bytes.
const MaxKubeconfig = 1 << 20

// Inline reads a kubeconfig that somebody else may have written: of a Secret, or of a directory that tenants fill. It takes nothing that
// would run a program, read a file of this machine and send it away, choose a way through other servers, or trust a server without a CA
// of its own. Nothing of it is kept once its [Client] is closed.
func Inline(data []byte) (*rest.Config, error) {
	raw, err := clientcmd.Load(data)
	if err != nil {
		return nil, errors.New("it is not a kubeconfig") // the cause could quote a credential
	}
	current, ok := raw.Contexts[raw.CurrentContext]
	if !ok {
		return nil, errors.New("its current-context names no context")
	}
	server, user := raw.Clusters[current.Cluster], raw.AuthInfos[current.AuthInfo]
	if server == nil || user == nil {
		return nil, errors.New("its current context names a cluster or a user that it does not have")
	}
	if err := errors.Join(inlineServer(server), inlineUser(user)); err != nil {
		return nil, err
	}
	only := clientcmdapi.Config{
		CurrentContext: "only", Contexts: map[string]*clientcmdapi.Context{"only": {Cluster: "only", AuthInfo: "only"}},
		Clusters: map[string]*clientcmdapi.Cluster{"only": server}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"only": user},
	}
	config, err := clientcmd.NewDefaultClientConfig(only, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.CAData = certificates(config.CAData)
	// client-go keeps a transport for each CA and certificate that it ever saw, for ever. It keeps none for a configuration with a function.
	config.Proxy = http.ProxyFromEnvironment
	return config, nil
}

// certificates returns what crypto/x509 takes of a PEM file, without the rest.
func certificates(data []byte) (all []byte) {
	for {
		var b *pem.Block
		if b, data = pem.Decode(data); b == nil {
			return all
		}
		if b.Type == "CERTIFICATE" && len(b.Headers) == 0 {
			all = append(all, pem.EncodeToMemory(b)...)
		}
	}
}

func inlineServer(c *clientcmdapi.Cluster) error {
	server, err := url.Parse(c.Server)
	switch {
	case err != nil || !strings.HasPrefix(c.Server, "https://"):
		return errors.New("its server is not an https URL")
	case server.User != nil: // it would be printed wherever the server is named
		return errors.New("its server's URL has a user or a password in it; give a token or a client certificate")
	case c.ProxyURL != "":
		return errors.New("it has proxy-url, which would send requests of this machine wherever it says; leave it out")
	case c.InsecureSkipTLSVerify:
		return errors.New("it has insecure-skip-tls-verify, so that anybody could answer for the cluster")
	case c.CertificateAuthority != "":
		return inFile("certificate-authority")
	case len(certificates(c.CertificateAuthorityData)) == 0:
		return errors.New("it has no certificate-authority-data with a certificate, so that any public CA could answer for the cluster")
	}
	return nil
}

func inlineUser(u *clientcmdapi.AuthInfo) error {
	switch {
	case u.Exec != nil || u.AuthProvider != nil:
		return errors.New("its user has exec or auth-provider, which would run a program here; give a token or a client certificate")
	case u.TokenFile != "":
		return inFile("tokenFile")
	case u.ClientCertificate != "" || u.ClientKey != "":
		return inFile("client-certificate and client-key")
	}
	return nil
}

func inFile(member string) error {
	return fmt.Errorf("it names a file (%s), which is not read; write the content into it: kubectl config view --raw --flatten --minify", member)
}
