// Package cluster looks at Kubernetes and OpenShift clusters from outside: which issuer they are, and with which keys
// their tokens can be verified. It promises to change nothing in a cluster that it only reads.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

// The paths of Kubernetes' ServiceAccountIssuerDiscovery (KEP-1393).
const (
	discoveryPath = "/.well-known/openid-configuration"
	jwksPath      = "/openid/v1/jwks"
)

// timeout bounds each request; a kube-apiserver answers these two from memory.
const timeout = 15 * time.Second

// PublicKeys asks the kube-apiserver that a context of a kubeconfig names (see [Access] for which is used when either is
// empty) which issuer it is and which keys verify its tokens. Those are all keys of --service-account-key-file, also old
// ones that clouds need not trust.
func PublicKeys(ctx context.Context, kubeconfig, contextName string) (issuer string, keys []keystore.VerificationKey, err error) {
	_, api, err := Access{Kubeconfig: kubeconfig, Context: contextName}.open()
	if err != nil {
		return "", nil, err
	}
	if issuer, err = api.issuer(ctx); err != nil {
		return "", nil, err
	}
	body, err := api.get(ctx, jwksPath)
	if err != nil {
		return "", nil, err
	}
	keys, err = pubkey.Parse(api.base+jwksPath, body)
	return issuer, keys, err
}

// InCluster in the place of a kubeconfig means the cluster in whose pod the program runs, with the pod's own service
// account. It is never meant by itself: a command that was to ask one cluster must not ask another instead.
const InCluster = "in-cluster"

// load follows the rules of kubectl: the file that is named, else those of $KUBECONFIG, else ~/.kube/config.
func load(kubeconfig, contextName string) (*rest.Config, error) {
	if kubeconfig == InCluster {
		return rest.InClusterConfig()
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	raw, err := rules.Load()
	if err != nil {
		return nil, err
	}
	if clientcmdapi.IsConfigEmpty(raw) {
		return nil, fmt.Errorf("there is none: %s name no cluster; give a file, set KUBECONFIG, or say %s inside a pod",
			strings.Join(rules.GetLoadingPrecedence(), " and "), InCluster)
	}
	// Not the deferred loading of client-go: that takes the pod's own cluster where it finds nothing.
	return clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{CurrentContext: contextName}).ClientConfig()
}

// api is one kube-apiserver, asked over plain HTTP requests: the two documents are no resources.
type api struct {
	base   string // without a trailing slash
	client *http.Client
}

func newAPI(config *rest.Config) (api, error) {
	config.Timeout = timeout
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return api{}, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return api{}, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the credentials would go along, to wherever it leads
	}
	base.Path, base.RawQuery = strings.TrimSuffix(base.Path, "/"), ""
	return api{base: base.String(), client: client}, nil
}

func (a api) issuer(ctx context.Context) (string, error) {
	body, err := a.get(ctx, discoveryPath)
	if err != nil {
		return "", err
	}
	var d struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(body, &d); err != nil || d.Issuer == "" {
		return "", fmt.Errorf("read %s%s: it is no discovery document", a.base, discoveryPath)
	}
	return d.Issuer, nil
}

func (a api) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the cluster: %w", oneLine(err))
	}
	defer func() { _ = resp.Body.Close() }()
	if err := checkStatus(resp.StatusCode, path); err != nil {
		return nil, fmt.Errorf("read %s%s: %w", a.base, path, err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, pubkey.MaxSize+1)) // one more, which ParsePublicKeys refuses
	if err != nil {
		return nil, fmt.Errorf("read %s%s: %w", a.base, path, oneLine(err))
	}
	return body, nil
}

func checkStatus(code int, path string) error {
	switch code {
	case http.StatusOK:
		return nil
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return fmt.Errorf("it redirects (%d), which is not followed: the credentials would go along", code)
	case http.StatusUnauthorized:
		return errors.New("the cluster does not accept the credentials of this kubeconfig (401)")
	case http.StatusForbidden:
		return fmt.Errorf("the user of this kubeconfig may not read %s (403); bind the ClusterRole "+
			"system:service-account-issuer-discovery to it, or give the public key file instead", path)
	case http.StatusNotFound:
		return errors.New("the cluster does not serve it (404); its --service-account-issuer is no https URL")
	}
	return fmt.Errorf("the cluster answers %d", code)
}

// oneLine keeps client-go's multi-line messages a sentence. What it says is for people, so nothing is wrapped but
// the context's end.
func oneLine(err error) error {
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, end) {
			return end
		}
	}
	return errors.New(text.Sentence(err.Error(), 0))
}
