// Package cluster asks Kubernetes and OpenShift clusters which issuer they are, which keys verify their tokens, and how long
// the tokens live. It promises to change nothing in a cluster but the Secrets of [OpenShift]; the tokens that it has minted are not kept.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/internal/kubeapi"
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
// ones that clouds need not trust; those that no cloud takes are left out.
func PublicKeys(ctx context.Context, kubeconfig, contextName string) (
	issuer string, keys []keystore.VerificationKey, left []pubkey.Left, err error,
) {
	_, api, err := Access{Kubeconfig: kubeconfig, Context: contextName}.open()
	if err != nil {
		return "", nil, nil, err
	}
	if issuer, err = api.issuer(ctx); err != nil {
		return "", nil, nil, err
	}
	keys, left, err = api.keys(ctx, maxJWKS)
	return issuer, keys, left, err
}

// keys returns the keys that a kube-apiserver lists.
func (a api) keys(ctx context.Context, limit int64) ([]keystore.VerificationKey, []pubkey.Left, error) {
	body, err := a.get(ctx, jwksPath, limit)
	if err != nil {
		return nil, nil, err
	}
	keys, left, err := pubkey.ParseUsable(a.client.URL()+jwksPath, body, nil)
	if err != nil {
		err = &UnfitError{err}
	}
	return keys, left, err
}

// InCluster in the place of a kubeconfig means the cluster in whose pod the program runs, with the pod's own service
// account. It has to be named: a command that was to ask one cluster must not ask another instead.
const InCluster = "in-cluster"

// load follows the rules of kubectl: the file that is named, else those of $KUBECONFIG, else ~/.kube/config.
func load(kubeconfig, contextName string) (*rest.Config, error) {
	if kubeconfig == InCluster {
		return rest.InClusterConfig()
	}
	config, err := kubeapi.Load(kubeconfig, contextName)
	if empty, ok := errors.AsType[*kubeapi.EmptyError](err); ok {
		return nil, fmt.Errorf("there is none: %s name no cluster; give a file, set KUBECONFIG, or say %s inside a pod",
			strings.Join(empty.Files, " and "), InCluster)
	}
	return config, err
}

// api is one kube-apiserver.
type api struct{ client kubeapi.Client }

func newAPI(config *rest.Config) (api, error) {
	client, err := kubeapi.New(config)
	return api{client}, err
}

func (a api) issuer(ctx context.Context) (string, error) {
	body, err := a.get(ctx, discoveryPath, maxIdentity)
	if err != nil {
		return "", err
	}
	var d struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(body, &d); err != nil || d.Issuer == "" {
		return "", &UnfitError{fmt.Errorf("read %s%s: it is not a discovery document", a.client.URL(), discoveryPath)}
	}
	return d.Issuer, nil
}

// maxJWKS is one byte more than pubkey.Parse takes, so that it refuses what is cut.
const maxJWKS = pubkey.MaxSize + 1

// get reads one of the two documents. The error says what to do.
func (a api) get(ctx context.Context, path string, limit int64) ([]byte, error) {
	// A kube-apiserver has its JWKS as application/jwk-set+json only, and answers 406 to who accepts nothing but
	// application/json.
	body, err := a.call(ctx, kubeapi.Request{Method: http.MethodGet, Path: path, Accept: "*/*"}, limit)
	switch {
	case kubeapi.IsStatus(err, http.StatusForbidden):
		err = fmt.Errorf("%w; bind the ClusterRole system:service-account-issuer-discovery to the user of this kubeconfig, "+
			"or give the public key file instead", err)
	case kubeapi.IsStatus(err, http.StatusNotFound):
		err = fmt.Errorf("%w; its --service-account-issuer is not an https URL", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s%s: %w", a.client.URL(), path, err)
	}
	return body, nil
}

// call makes one request and reads at most limit bytes.
func (a api) call(ctx context.Context, r kubeapi.Request, limit int64) ([]byte, error) {
	body, err := a.client.Call(ctx, r, kubeapi.Limits{Time: timeout, Bytes: limit})
	if status, ok := errors.AsType[*kubeapi.StatusError](err); ok {
		return nil, refusal{status}
	}
	if large, ok := errors.AsType[*kubeapi.TooLargeError](err); ok {
		return nil, &UnfitError{large}
	}
	if err != nil {
		return nil, oneLine(err)
	}
	return body, nil
}

// oneLine returns a message of client-go, which may have several lines, as one sentence. The error wraps nothing but the
// context's.
func oneLine(err error) error {
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, end) {
			return end
		}
	}
	return errors.New(text.Sentence(err.Error(), 0))
}

// maxResource bounds what is read of one reply: a page of the largest pods stays below it.
const maxResource = 256 << 20

// refusal is an answer other than success, as one sentence. It wraps the [*kubeapi.StatusError].
type refusal struct{ *kubeapi.StatusError }

func (e refusal) Unwrap() error { return e.StatusError }

func (e refusal) Error() string {
	switch {
	case e.Code >= 300 && e.Code < 400:
		return fmt.Sprintf("the cluster redirects (%d), which is not followed: the credentials would go along", e.Code)
	case e.Code == http.StatusUnauthorized:
		return "the cluster does not accept the credentials of this kubeconfig (401)"
	case e.Status && e.Message != "": // a Status names resources and users, no secrets; another body may
		return fmt.Sprintf("the cluster answers %d: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("the cluster answers %d", e.Code)
}

// read gets a resource. The types are declared where they are used, with no more members than are read.
func (a api) read(ctx context.Context, path string, into any) error {
	return a.do(ctx, kubeapi.Request{Method: http.MethodGet, Path: path}, into)
}

func (a api) create(ctx context.Context, path string, body []byte, into any) error {
	return a.do(ctx, kubeapi.Request{Method: http.MethodPost, Path: path, Body: body}, into)
}

func (a api) do(ctx context.Context, r kubeapi.Request, into any) error {
	body, err := a.call(ctx, r, maxResource)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return errors.New("the cluster's answer is not the JSON that was asked for") // the cause could quote a token
	}
	return nil
}

// Refused reports whether err is a cluster's answer that it will give again: to who may not ask, or who asks for what is not there.
func Refused(err error) bool {
	status, answered := errors.AsType[*kubeapi.StatusError](err)
	return answered && status.Code >= 300 && status.Code < 500 && status.Code != http.StatusRequestTimeout && status.Code != http.StatusTooManyRequests
}
