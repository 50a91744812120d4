package cluster

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/rotation"
)

// Access describes how a cluster is reached. The functions of this package need these permissions of the kubeconfig's user:
//
//	Signers        list endpointslices (discovery.k8s.io) in default, create serviceaccounts/token for the account
//	TokenLifetime  list pods in all namespaces, create serviceaccounts/token for the account
//	Signing        what Signers needs; Lifetime needs what TokenLifetime needs, and Lists what PublicKeys needs, or they say that they
//	               do not know
//	ChosenIssuer   get authentications/cluster (config.openshift.io), on OpenShift only
//	PublicKeys     the ClusterRole system:service-account-issuer-discovery
//	Verify         what Signers and PublicKeys need; it also lists the pods of kube-system where it may
type Access struct {
	Kubeconfig string // file, or InCluster; when empty, the files of $KUBECONFIG, else ~/.kube/config
	Context    string // the current one when empty

	// ServiceAccount, NAMESPACE/NAME, is the account that tokens are minted for. When empty it is default/default,
	// which every cluster has and nobody should give rights to.
	ServiceAccount string

	// Reach is host:port at which a kube-apiserver is reached from here, by the address that the cluster lists, where that leads
	// nowhere: the end of a tunnel to this one server. A balancer's address would hide who signs with what.
	Reach map[string]string
}

// Signer is what a fresh token of one kube-apiserver contains.
type Signer struct {
	Address  string         // host:port, at which only it answers
	Issuer   string         // the token's iss: the issuer that relying parties have to trust
	KeyID    keystore.KeyID // the token's kid
	Lifetime time.Duration  // the token's exp - iat
}

// minLifetime is the shortest that the TokenRequest API grants. The token is not kept.
const minLifetime = 10 * time.Minute

// Signers has every kube-apiserver of a cluster mint a token with an audience, and returns what the tokens contain. Each is
// called at its own address: a server that was not restarted yet goes on signing with the old issuer and key, and behind a
// load balancer nobody would notice. The addresses are those in the EndpointSlices of the service default/kubernetes, in
// order. TLS is checked against the CA and the server name of the kubeconfig. A server that does not answer is an error.
// No token is kept, printed or part of an error.
//
// Also with an error it returns every server that is listed, one that does not answer only by its address. A lifetime of 0 is the shortest.
func Signers(ctx context.Context, a Access, lifetime time.Duration, audience string) (found []Signer, err error) {
	namespace, name, err := a.account()
	if err != nil {
		return nil, err
	}
	var failed error
	err = a.each(ctx, func(address string, server api) {
		s, err := server.mint(ctx, namespace, name, request{lifetime, []string{audience}})
		if err != nil {
			failed = cmp.Or(failed, fmt.Errorf("have the kube-apiserver at %s mint a token (each is asked at its own address): %w", address, err))
		}
		s.Address = address
		found = append(found, s.Signer)
	})
	return found, cmp.Or(err, failed)
}

// each calls do with each kube-apiserver of the cluster, asked at its own address.
func (a Access) each(ctx context.Context, do func(address string, server api)) error {
	config, first, err := a.open()
	if err != nil {
		return err
	}
	addresses, err := first.addresses(ctx)
	if err == nil {
		err = a.checkReach(addresses)
	}
	if err != nil {
		return err
	}
	for _, address := range addresses {
		server, err := newAPI(at(config, cmp.Or(a.Reach[address], address)))
		if err != nil {
			return fmt.Errorf("%s: %w", a.named("use"), oneLine(err))
		}
		do(address, server)
	}
	return nil
}

// checkReach returns an error unless Reach has listed addresses only, each with a place of its own.
func (a Access) checkReach(listed []string) error {
	taken := map[string]string{}
	for _, server := range slices.Sorted(maps.Keys(a.Reach)) {
		at := a.Reach[server]
		if !slices.Contains(listed, server) {
			return fmt.Errorf("reach the kube-apiserver %s at %s: name it as the cluster lists it: %s", server, at, strings.Join(listed, ", "))
		}
		if other, is := taken[at]; is || at != server && slices.Contains(listed, at) {
			return fmt.Errorf("reach the kube-apiserver %s at %s: that is where %s is; behind one address nobody sees who signs with what", server, at, cmp.Or(other, at))
		}
		taken[at] = server
	}
	return nil
}

func (a Access) account() (namespace, name string, err error) {
	if a.ServiceAccount == "" {
		return "default", "default", nil
	}
	namespace, name, ok := strings.Cut(a.ServiceAccount, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("service account %q: give it as NAMESPACE/NAME", a.ServiceAccount)
	}
	return namespace, name, nil
}

func (a Access) open() (*rest.Config, api, error) {
	config, err := load(a.Kubeconfig, a.Context)
	if err != nil {
		return nil, api{}, fmt.Errorf("%s: %w", a.named("read"), oneLine(err))
	}
	server, err := newAPI(config)
	if err != nil {
		return nil, api{}, fmt.Errorf("%s: %w", a.named("use"), oneLine(err))
	}
	return config, server, nil
}

// named returns what is done with the kubeconfig, for messages.
func (a Access) named(verb string) string {
	if a.Kubeconfig == "" {
		return verb + " kubeconfig ($KUBECONFIG or ~/.kube/config)"
	}
	return verb + " kubeconfig " + a.Kubeconfig
}

// at returns the configuration for one address of the same cluster. The server name stays that of the kubeconfig: it is the
// one name that the certificates of all kube-apiservers have.
func at(config *rest.Config, address string) *rest.Config {
	c := rest.CopyConfig(config)
	if base, _, err := rest.DefaultServerUrlFor(config); err == nil && c.ServerName == "" {
		c.ServerName = base.Hostname()
	}
	c.Host = "https://" + address
	return c
}

type endpointSlice struct {
	Endpoints []struct {
		Addresses []string `json:"addresses"`
	} `json:"endpoints"`
	Ports []struct {
		Port int `json:"port"`
	} `json:"ports"`
}

var errNoServers = errors.New("list the kube-apiservers: the service default/kubernetes has no endpoints, " +
	"so that nobody knows how many there are; wait until one is ready, and start none with --endpoint-reconciler-type=none or a loopback --advertise-address")

// addresses lists host:port of every kube-apiserver; each keeps its own entry there.
func (a api) addresses(ctx context.Context) ([]string, error) {
	const path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	var list struct {
		Items []endpointSlice `json:"items"`
	}
	if err := a.read(ctx, path+"?labelSelector="+url.QueryEscape("kubernetes.io/service-name=kubernetes"), &list); err != nil {
		return nil, fmt.Errorf("list the kube-apiservers (EndpointSlices of the service default/kubernetes): %w", err)
	}
	var found []string
	for _, s := range list.Items {
		found = append(found, s.hostPorts()...)
	}
	if len(found) == 0 {
		return nil, errNoServers
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

func (s endpointSlice) hostPorts() []string {
	var found []string
	for _, p := range s.Ports {
		for _, e := range s.Endpoints {
			for _, host := range e.Addresses {
				found = append(found, net.JoinHostPort(host, strconv.Itoa(p.Port)))
			}
		}
	}
	return found
}

// minted is the content of a token.
type minted struct {
	Signer
	audiences []string
	token     string // only for [minted.signedBy]
}

// signedBy reports whether a key verifies the token's signature.
func (m minted) signedBy(k keystore.VerificationKey) bool {
	jws, err := jose.ParseSignedCompact(m.token, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(k.Alg())})
	if err != nil {
		return false
	}
	_, err = jws.Verify(k.Key())
	return err == nil
}

// request is what is asked for.
type request struct {
	lifetime  time.Duration // 0: minLifetime
	audiences []string
}

// mint requests a token (TokenRequest, authentication.k8s.io/v1) and returns its content. Without an
// audience the token gets the cluster's own, those of --api-audiences.
func (a api) mint(ctx context.Context, namespace, name string, want request) (minted, error) {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "authentication.k8s.io/v1",
		"kind":       "TokenRequest",
		"spec":       map[string]any{"audiences": want.audiences, "expirationSeconds": int64(cmp.Or(want.lifetime, minLifetime).Seconds())},
	})
	if err != nil {
		return minted{}, err
	}
	var reply struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/serviceaccounts/" + url.PathEscape(name) + "/token"
	if err := a.create(ctx, path, body, &reply); err != nil {
		return minted{}, err
	}
	return readToken(reply.Status.Token)
}

// readToken decodes a token. It does not check the signature: the token came from the signer itself, over TLS.
func readToken(token string) (minted, error) {
	errNoToken := errors.New("the answer is not a service account token")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return minted{}, errNoToken
	}
	var header struct {
		KeyID keystore.KeyID `json:"kid"`
	}
	var claims struct {
		Issuer    string   `json:"iss"`
		Audiences []string `json:"aud"`
		Issued    int64    `json:"iat"`
		Expires   int64    `json:"exp"`
	}
	for i, into := range []any{&header, &claims} {
		data, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || json.Unmarshal(data, into) != nil { // the cause would quote the token
			return minted{}, errNoToken
		}
	}
	if header.KeyID == "" || claims.Issuer == "" || claims.Expires <= claims.Issued {
		return minted{}, errors.New("its token does not have all of kid, iss, iat and exp")
	}
	lifetime := time.Duration(claims.Expires-claims.Issued) * time.Second
	return minted{Signer{Issuer: claims.Issuer, KeyID: header.KeyID, Lifetime: lifetime}, claims.Audiences, token}, nil
}

// Signing is a cluster in a rotation of its signing key. It needs the permissions of Signers. It writes
// nothing: the private key never leaves the place where it was made.
type Signing struct{ Access }

var _ rotation.Cluster = Signing{}

// mintedFor is the audience of the tokens that show who signs with what. Nobody accepts it.
const mintedFor = "keypost.invalid"

// Signers implements [rotation.Cluster] by a token of each kube-apiserver.
func (c Signing) Signers(ctx context.Context) (map[string]keystore.KeyID, error) {
	all, err := Signers(ctx, c.Access, 0, mintedFor)
	if len(all) == 0 {
		return nil, err
	}
	kids := make(map[string]keystore.KeyID, len(all))
	for _, s := range all {
		kids[s.Address] = s.KeyID
	}
	return kids, err
}

// Lists implements [rotation.Cluster] by the JWKS of each kube-apiserver.
func (c Signing) Lists(ctx context.Context, k keystore.VerificationKey) (map[string]bool, error) {
	lists := map[string]bool{}
	var failed error
	err := c.each(ctx, func(address string, server api) {
		keys, _, err := server.keys(ctx, maxJWKS)
		if err != nil {
			failed = cmp.Or(failed, err)
			return
		}
		lists[address] = slices.ContainsFunc(keys, k.Equal)
	})
	return lists, cmp.Or(err, failed)
}

// Stage implements [rotation.Cluster]. The error is always a [*rotation.ByHandError].
func (c Signing) Stage(_ context.Context, k keystore.Key) error {
	return rotation.ByHand(k.ID())
}
