package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/internal/signingkey"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/keystore/rotation"
)

// Where OpenShift's operator takes the next signing key from: a complete pair in operatorPair is distributed to every
// kube-apiserver, and then signs. The two others are ours, in the same namespace: the pair that is not to sign yet, and the
// one that signed before. A way back exchanges them. So no private key ever leaves the cluster.
//
// Source: openshift/cluster-kube-apiserver-operator, pkg/operator/boundsatokensignercontroller/controller.go
const (
	operatorNamespace = "openshift-kube-apiserver-operator"
	operatorPair      = "next-bound-service-account-signing-key"
	nextPair          = "keypost-next-signing-key"
	previousPair      = "keypost-previous-signing-key"
)

// OpenShift is an OpenShift cluster in a rotation of its signing key. Besides what [Signing] needs, it gets, creates,
// updates and deletes Secrets in namespace openshift-kube-apiserver-operator.
type OpenShift struct{ Signing }

var _ rotation.Cluster = OpenShift{}

// IsOpenShift reports whether a cluster has OpenShift's API.
func IsOpenShift(ctx context.Context, a Access) (bool, error) {
	_, is, err := ChosenIssuer(ctx, a)
	return is, err
}

// secret is a Secret with a pair, by its members. What is not ours, such as its type and labels, stays as it is.
type secret map[string]json.RawMessage

// NextKey makes a pair in the cluster that is not to sign yet, and returns its public half. A pair that an earlier run has
// made is taken if usable says so, else replaced.
func (o OpenShift) NextKey(ctx context.Context, usable func(keystore.VerificationKey) bool) (keystore.VerificationKey, error) {
	_, server, err := o.open()
	if err != nil {
		return keystore.VerificationKey{}, err
	}
	was, err := server.secret(ctx, nextPair)
	if err != nil {
		return keystore.VerificationKey{}, err
	}
	if k, known, _ := was.pair(); known && usable(k) {
		return k, nil
	}
	pair, err := signingkey.Generate(signingkey.RSA2048) // what the operator itself makes, and all clouds take
	if err != nil {
		return keystore.VerificationKey{}, err
	}
	data, err := pair.SecretData()
	if err != nil {
		return keystore.VerificationKey{}, err
	}
	return pair.Public(), server.put(ctx, nextPair, was, data)
}

// Stage implements [rotation.Cluster]: it gives the operator the pair of k, and keeps the one that it had.
func (o OpenShift) Stage(ctx context.Context, k keystore.Key) error {
	_, server, err := o.open()
	if err != nil {
		return err
	}
	signs, err := server.secret(ctx, operatorPair)
	if err != nil {
		return err
	}
	if signs.is(k) {
		return server.drop(ctx, k) // the operator has it; it takes minutes until every kube-apiserver does
	}
	for from, keep := range map[string]string{nextPair: previousPair, previousPair: nextPair} {
		pair, err := server.secret(ctx, from)
		if err != nil {
			return err
		}
		if !pair.is(k) {
			continue
		}
		if err := server.keep(ctx, signs, keep); err != nil {
			return err
		}
		return server.put(ctx, operatorPair, signs, pair["data"])
	}
	return &rotation.ByHandError{Do: fmt.Sprintf("write the pair of key %s into the Secret %s of namespace %s; its operator hands it to every kube-apiserver", k.ID(), operatorPair, operatorNamespace)}
}

// keep stores what the operator has under another name: it may be wanted back. A private key is kept also where its public
// half is none that we can read.
func (a api) keep(ctx context.Context, signs secret, name string) error {
	if _, _, private := signs.pair(); !private {
		return nil
	}
	was, err := a.secret(ctx, name)
	if err != nil {
		return err
	}
	return a.put(ctx, name, was, signs["data"])
}

// drop deletes our copy of a pair that the operator has, if it is still what was read: somebody who turns the rotation
// around may just have put another pair there.
func (a api) drop(ctx context.Context, k keystore.Key) error {
	pair, err := a.secret(ctx, nextPair)
	if err != nil || !pair.is(k) {
		return err
	}
	var metadata struct {
		UID             string `json:"uid,omitempty"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	}
	if err := json.Unmarshal(pair["metadata"], &metadata); err != nil || metadata.ResourceVersion == "" {
		return fmt.Errorf("delete Secret %s/%s: it has no resourceVersion", operatorNamespace, nextPair)
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": metadata})
	if err != nil {
		return err
	}
	err = a.do(ctx, kubeapi.Request{Method: http.MethodDelete, Path: secretPath(nextPair), Body: body}, &struct{}{})
	if err != nil && !kubeapi.IsStatus(err, http.StatusNotFound) && !kubeapi.IsStatus(err, http.StatusConflict) {
		return fmt.Errorf("delete Secret %s/%s: %w", operatorNamespace, nextPair, err)
	}
	return nil
}

const secretsPath = "/api/v1/namespaces/" + operatorNamespace + "/secrets"

func secretPath(name string) string { return secretsPath + "/" + name }

// secret reads a Secret; nil where there is none.
func (a api) secret(ctx context.Context, name string) (s secret, err error) {
	err = a.read(ctx, secretPath(name), &s)
	if kubeapi.IsStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", operatorNamespace, name, err)
	}
	return s, nil
}

// put stores a pair in the Secret that was read, or in a new one. A Secret that somebody else has changed since it was read
// is left alone: it goes out with the resourceVersion that it came with.
func (a api) put(ctx context.Context, name string, was secret, data json.RawMessage) error {
	r := kubeapi.Request{Method: http.MethodPut, Path: secretPath(name)}
	s := secret{}
	maps.Copy(s, was)
	s["data"] = data
	if was == nil {
		r.Method, r.Path = http.MethodPost, secretsPath
		s["apiVersion"], s["kind"], s["type"] = json.RawMessage(`"v1"`), json.RawMessage(`"Secret"`), json.RawMessage(`"Opaque"`)
		s["metadata"] = json.RawMessage(fmt.Sprintf(`{"name":%q,"namespace":%q}`, name, operatorNamespace))
	}
	var err error
	if r.Body, err = json.Marshal(s); err != nil {
		return errors.New("encode a Secret") // err could quote it
	}
	if err := a.do(ctx, r, &struct{}{}); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", operatorNamespace, name, err)
	}
	return nil
}

// pair returns the verification key of a pair, and whether it is complete; and whether there is a private key at all, even if
// its public half cannot be read.
func (s secret) pair() (k keystore.VerificationKey, complete, private bool) {
	var data map[string][]byte
	if json.Unmarshal(s["data"], &data) != nil || len(data[signingkey.SecretPrivate]) == 0 {
		return k, false, false
	}
	keys, err := pubkey.Parse(signingkey.SecretPublic, data[signingkey.SecretPublic])
	if err != nil || len(keys) != 1 {
		return k, false, true
	}
	return keys[0], true, true
}

// is reports whether a Secret has the complete pair of a key.
func (s secret) is(k keystore.Key) bool {
	has, complete, _ := s.pair()
	return complete && has.Fingerprint() == k.Fingerprint()
}
