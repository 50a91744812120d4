package cluster

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
)

// Wanted is what the tokens of a cluster have to be, so that the relying parties of an issuer accept them.
type Wanted struct {
	Issuer    string   // URL
	Audiences []string // that clouds ask for; the first is the one that a token is minted with
	// Published are the keys at the issuer's public URL. Nil if they could not be read: then no key is compared.
	Published []keystore.VerificationKey
	Set       keystore.KeySet // which has those keys; zero where nobody can say
}

// stored returns the key of the key set with the material of a published one; the zero key if there is none.
func (w Wanted) stored(k keystore.VerificationKey) keystore.Key {
	for _, has := range w.Set.Keys() {
		if has.Fingerprint() == k.Fingerprint() {
			return has
		}
	}
	return keystore.Key{}
}

// gone returns the line of a key that left the key set, if one has the ID.
func (w Wanted) gone(id keystore.KeyID) (line keystore.Gone, left bool) {
	for _, g := range w.Set.Gone() {
		if g.ID == id {
			return g, true
		}
	}
	return line, false
}

// Verify looks at a cluster from outside and returns whether its tokens are what the relying parties of an issuer want. Every
// kube-apiserver is made to mint a token, at the kubeconfig's address and at its own, since one that was not restarted goes on
// signing as before. No token is kept, printed or part of a finding. A right that the kubeconfig's user does not have is a finding. The
// error is about the kubeconfig, or ctx is done.
func Verify(ctx context.Context, a Access, w Wanted) ([]finding.Finding, error) {
	namespace, name, err := a.account()
	if err != nil {
		return nil, err
	}
	config, first, err := a.open()
	if err != nil {
		return nil, err
	}
	e := &examination{access: a, want: w, namespace: namespace, name: name}
	servers, ok := e.servers(ctx, config, first)
	if ok {
		e.mintAt(ctx, servers)
		e.checkSigners(ctx, first)
	}
	e.checkKnown(ctx, servers)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return e.Sorted(), nil
}

// examination collects what is found at a cluster.
type examination struct {
	access          Access
	want            Wanted
	namespace, name string // of the service account
	found           []signing
	listed          []string // the issuers of --service-account-issuer, where they can be seen
	finding.Report
	down bool
}

// signing is what one kube-apiserver signs.
type signing struct {
	address string
	own     minted // without an audience: with those of --api-audiences
}

// at notes that the last finding is about some of the servers only.
func (e *examination) at(addresses []string) {
	if len(addresses) < len(e.found) {
		e.Findings[len(e.Findings)-1].At = addresses
	}
}

// server is one kube-apiserver, under the address that it is asked at.
type server struct {
	address string
	own     bool // the address is its own, and not the kubeconfig's
	listed  bool // the address is one of those in the EndpointSlices, and not a balancer's
	api     api
}

// servers returns the kube-apiservers to ask; the first is that of the kubeconfig. It reports whether there is one.
func (e *examination) servers(ctx context.Context, config *rest.Config, first api) ([]server, bool) {
	all := []server{{address: hostPort(first.client.URL()), api: first}}
	addresses, err := first.addresses(ctx)
	if err == nil {
		err = e.access.checkReach(addresses)
	}
	switch {
	case kubeapi.IsStatus(err, http.StatusForbidden):
		const role = "keypost-verify-endpointslices"
		e.forbidden(err, "list the kube-apiservers", "clusterrole "+role+" --verb=list --resource=endpointslices.discovery.k8s.io",
			"clusterrolebinding "+role+" --clusterrole="+role)
	case kubeapi.IsStatus(err, http.StatusUnauthorized):
		e.down = true
		e.FailWith("cluster-unreachable", "log in to the cluster anew, or give another --context", "%s: %v", e.access.named("use"), err)
		return nil, false
	case errors.Is(err, errNoServers):
		e.Warn("cluster-servers-unasked", "%v; only %s was asked", err, all[0].address)
	case err != nil:
		e.down = true
		e.FailWith("cluster-unreachable", e.command("kubectl", "version"), "%v", err)
		return nil, false
	}
	for _, address := range addresses {
		if address == all[0].address {
			all[0].listed = true
			continue
		}
		if s, err := newAPI(at(config, cmp.Or(e.access.Reach[address], address))); err == nil { // config has just been used for the first
			all = append(all, server{address: address, own: true, listed: true, api: s})
		}
	}
	return all, true
}

func hostPort(raw string) string {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return raw
	case u.Port() == "":
		return u.Host + ":443"
	}
	return u.Host
}

// mintAt has every server mint two tokens: one with the cluster's own audiences and one for a cloud.
func (e *examination) mintAt(ctx context.Context, servers []server) {
	type outcome struct {
		own minted
		err error
	}
	outcomes := make([]outcome, len(servers))
	var wait sync.WaitGroup
	for i, s := range servers {
		wait.Go(func() {
			o := &outcomes[i]
			if o.own, o.err = s.api.mint(ctx, e.namespace, e.name, request{}); o.err == nil && len(e.want.Audiences) > 0 {
				_, o.err = s.api.mint(ctx, e.namespace, e.name, request{audiences: e.want.Audiences[:1]})
			}
		})
	}
	wait.Wait()
	for i, o := range outcomes {
		if o.err != nil {
			e.notMinted(ctx, servers[i], o.err)
			continue
		}
		e.found = append(e.found, signing{servers[i].address, o.own})
	}
}

func (e *examination) notMinted(ctx context.Context, s server, err error) {
	status, answered := errors.AsType[*kubeapi.StatusError](err)
	switch account := e.namespace + "/" + e.name; {
	case answered && status.Code == http.StatusForbidden:
		const role = "keypost-verify-serviceaccounts-token"
		in := " " + text.Quoted("--namespace", e.namespace)
		e.forbidden(err, "have a token minted for "+account, "role "+role+" --verb=create --resource=serviceaccounts/token "+text.Quoted("--resource-name="+e.name)+in,
			"rolebinding "+role+" --role="+role+in)
	case answered && status.Code == http.StatusNotFound:
		create := e.command("kubectl", "create", "serviceaccount", e.name, "--namespace", e.namespace)
		if err := s.api.read(ctx, "/api/v1/namespaces/"+url.PathEscape(e.namespace), new(struct{})); kubeapi.IsStatus(err, http.StatusNotFound) {
			create = e.command("kubectl", "create", "namespace", e.namespace) + " && " + create
		}
		e.WarnWith("cluster-account-missing", "give another with --service-account NAMESPACE/NAME, or make it: "+create, "no token was minted for %s: %v", account, err)
	case !answered && s.own:
		e.Warn("cluster-servers-unasked", "the kube-apiserver at %s was not asked, so it may sign as another or with another key: %v", s.address, err)
	default:
		e.FailWith("cluster-account-missing", e.command("kubectl", "create", "token", e.name, "--namespace", e.namespace),
			"the kube-apiserver at %s mints no token for %s: %v", s.address, account, err)
	}
}

// forbidden adds a finding about a right that is missing, with the commands that grant it to the user: a role, and what binds it.
func (e *examination) forbidden(err error, what, role, binding string) {
	user := "USER"
	if status, ok := errors.AsType[*kubeapi.StatusError](err); ok {
		if _, rest, found := strings.Cut(status.Message, `User "`); found {
			user, _, _ = strings.Cut(rest, `"`)
		}
	}
	if role != "" {
		role = "kubectl create " + role + " && "
	}
	e.WarnWith("cluster-forbidden", "as an administrator of the cluster: "+role+"kubectl create "+binding+" "+text.Quoted("--user="+user), "%s may not %s: %v", user, what, err)
}

// command returns a command line of kubectl for this cluster.
func (e *examination) command(words ...string) string {
	if e.access.Kubeconfig != "" && e.access.Kubeconfig != InCluster {
		words = append(words, "--kubeconfig", e.access.Kubeconfig)
	}
	if e.access.Context != "" {
		words = append(words, "--context", e.access.Context)
	}
	return text.Quoted(words...)
}

// checkSigners compares what was minted with what is wanted.
func (e *examination) checkSigners(ctx context.Context, first api) {
	if len(e.found) == 0 {
		return
	}
	e.listed = listIssuers(ctx, first)
	e.checkIssuer()
	if e.want.Published != nil {
		e.checkKeys()
	} else { // no word would look like a good one
		e.Warn("cluster-servers-unasked", "the key that the cluster signs with was not compared: the keys of %s could not be read", e.want.Issuer)
	}
	e.checkAudiences()
}

// grouped calls f once for each kind of token that the servers mint, with the addresses of the servers that do.
func (e *examination) grouped(kind func(signing) string, f func(s signing, addresses []string)) {
	addresses := map[string][]string{}
	for _, s := range e.found {
		addresses[kind(s)] = append(addresses[kind(s)], s.address)
	}
	for _, s := range e.found {
		if all := addresses[kind(s)]; all[0] == s.address {
			f(s, all)
		}
	}
}

// flagsOfAccess are those of keypost that name this cluster.
func (e *examination) flagsOfAccess() []string {
	words := []string{"--kubeconfig", cmp.Or(e.access.Kubeconfig, "FILE")}
	if e.access.Context != "" {
		words = append(words, "--context", e.access.Context)
	}
	return words
}
