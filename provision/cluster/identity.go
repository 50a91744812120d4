package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

// Identity is who a cluster is and which keys verify its tokens, by one look through its API server.
type Identity struct {
	ID     keystore.ClusterID
	Issuer string // its own name of itself
	Keys   []keystore.VerificationKey
	Left   []pubkey.Left // keys that it lists too, and that no cloud takes
}

// UnfitError is about a cluster that answered, with what is not taken of any cluster. It stays so until somebody changes the cluster.
type UnfitError struct{ Err error }

func (e *UnfitError) Error() string { return e.Err.Error() }
func (e *UnfitError) Unwrap() error { return e.Err }

// maxIdentity bounds each answer of Identify, in bytes: a few keys have some kilobytes. Hundreds of clusters are asked at once, and one
// that sends as much as it may must not take the memory of all.
const maxIdentity = 64 << 10

// Identify asks a cluster which one it is, before and after it reads the keys: what stands behind an address may change meanwhile.
func Identify(ctx context.Context, config *rest.Config) (Identity, error) {
	a, err := newAPI(config)
	if err != nil {
		return Identity{}, &UnfitError{oneLine(err)}
	}
	defer a.client.Close()
	id, err := a.id(ctx)
	if err != nil {
		return Identity{}, err
	}
	seen := Identity{ID: id}
	if seen.Issuer, err = a.issuer(ctx); err != nil {
		return Identity{}, err
	}
	if len(seen.Issuer) > maxIssuer {
		return Identity{}, &UnfitError{errors.New("its own issuer is longer than any URL")}
	}
	if seen.Keys, seen.Left, err = a.keys(ctx, maxIdentity); err != nil {
		return Identity{}, err
	}
	again, err := a.id(ctx)
	if err == nil && again != id {
		err = fmt.Errorf("two clusters answer at %s: one has the UID %s, another one %s", a.client.URL(), id, again)
	}
	return seen, err
}

// maxIssuer bounds what a cluster calls itself, in bytes.
const maxIssuer = 2048

// ID asks the cluster of a kubeconfig which one it is.
func ID(ctx context.Context, kubeconfig, contextName string) (keystore.ClusterID, error) {
	_, a, err := Access{Kubeconfig: kubeconfig, Context: contextName}.open()
	if err != nil {
		return "", err
	}
	return a.id(ctx)
}

func (a api) id(ctx context.Context) (keystore.ClusterID, error) {
	var n struct {
		Metadata struct {
			UID keystore.ClusterID `json:"uid"`
		} `json:"metadata"`
	}
	const path = "/api/v1/namespaces/kube-system"
	body, err := a.call(ctx, kubeapi.Request{Method: http.MethodGet, Path: path}, maxIdentity)
	if kubeapi.IsStatus(err, http.StatusForbidden) {
		err = fmt.Errorf("the user of this kubeconfig may not get the namespace kube-system, whose UID says which cluster it is: %w", err)
	}
	if err == nil && (json.Unmarshal(body, &n) != nil || n.Metadata.UID.Check() != nil) {
		err = &UnfitError{errors.New("it has no UID")}
	}
	if err != nil {
		return "", fmt.Errorf("read %s%s: %w", a.client.URL(), path, err)
	}
	return n.Metadata.UID, nil
}

// Own returns the access of the pod in which the program runs.
func Own() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, errors.New(text.Sentence(err.Error(), 0))
	}
	return config, nil
}
