package cluster

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/audience"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

// Wanted is what the tokens of a cluster have to be, so that the relying parties of an issuer accept them.
type Wanted struct {
	Issuer    string   // URL
	Audiences []string // that clouds ask for; the first is the one that a token is minted with
	// Published are the keys at the issuer's public URL. Nil if they could not be read: then no key is compared.
	Published []keystore.VerificationKey
	// Token is one that each kube-apiserver is asked about (TokenReview); empty for none.
	Token string
	// Idle reports whether it is right that the cluster does not know a published key: it is not to sign yet, or no more.
	// Nil if nobody can say.
	Idle func(keystore.VerificationKey) bool
}

// Verify looks at a cluster from outside and returns whether its tokens are what the relying parties of an issuer want. Every
// kube-apiserver is made to mint a token, at the kubeconfig's address and at its own, since one that was not restarted goes on
// signing as before. No token is kept, printed or part of a finding. A right that the kubeconfig's user lacks is a finding. The
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
	if servers, ok := e.servers(ctx, config, first); ok {
		e.mintAt(ctx, servers)
		e.checkSigners(ctx, first)
		e.reviewToken(ctx, servers)
	}
	e.checkKnown(ctx, first)
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
	seen            flags
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
	api     api
}

// servers returns the kube-apiservers to ask; the first is that of the kubeconfig. It reports whether there is one.
func (e *examination) servers(ctx context.Context, config *rest.Config, first api) ([]server, bool) {
	all := []server{{address: hostPort(first.client.URL()), api: first}}
	addresses, err := first.addresses(ctx)
	switch {
	case kubeapi.IsStatus(err, http.StatusForbidden):
		e.forbidden(err, "list the kube-apiservers", "clusterrole", "--verb=list", "--resource=endpointslices.discovery.k8s.io")
	case kubeapi.IsStatus(err, http.StatusUnauthorized):
		e.down = true
		e.Fail("cluster-unauthorized", "%s: %v", e.access.named("use"), err)
		return nil, false
	case errors.Is(err, errNoServers):
		e.Warn("cluster-servers-unasked", "%v; %s alone was asked", err, all[0].address)
	case err != nil:
		e.down = true
		e.FailWith("cluster-unreachable", e.command("kubectl", "version"), "%v", err)
		return nil, false
	}
	for _, address := range addresses {
		if address == all[0].address {
			continue
		}
		if s, err := newAPI(at(config, address)); err == nil { // config has just been used for the first
			all = append(all, server{address: address, own: true, api: s})
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
			e.notMinted(servers[i], o.err)
			continue
		}
		e.found = append(e.found, signing{servers[i].address, o.own})
	}
}

func (e *examination) notMinted(s server, err error) {
	status, answered := errors.AsType[*kubeapi.StatusError](err)
	switch account := e.namespace + "/" + e.name; {
	case answered && status.Code == http.StatusForbidden:
		e.forbidden(err, "have a token minted for "+account, "role", "--verb=create", "--resource=serviceaccounts/token", "--resource-name="+e.name)
	case answered && status.Code == http.StatusNotFound:
		e.WarnWith("cluster-account-missing", e.command("kubectl", "create", "serviceaccount", e.name, "--namespace", e.namespace),
			"no token was minted for %s: %v", account, err)
	case !answered && s.own:
		e.Warn("cluster-servers-unasked", "the kube-apiserver at %s was not asked, so it may sign as another or with another key: %v", s.address, err)
	default:
		e.FailWith("cluster-token-refused", e.command("kubectl", "create", "token", e.name, "--namespace", e.namespace),
			"the kube-apiserver at %s mints no token for %s: %v", s.address, account, err)
	}
}

// forbidden adds a finding with the commands that grant what is lacking, by a role in the namespace of the service account or
// by a clusterrole.
func (e *examination) forbidden(err error, what, kind string, rule ...string) {
	title := "keypost-verify-" + strings.ReplaceAll(strings.TrimPrefix(rule[1], "--resource="), "/", "-")
	title, _, _ = strings.Cut(title, ".")
	role := append([]string{"kubectl", "create", kind, title}, rule...)
	binding := []string{"kubectl", "create", kind + "binding", title, "--" + kind + "=" + title}
	if kind == "role" {
		role, binding = append(role, "--namespace", e.namespace), append(binding, "--namespace", e.namespace)
	}
	e.mayNot(err, what, role, binding)
}

// mayNot adds a finding about a right that is lacking. The last of the commands binds it to the user.
func (e *examination) mayNot(err error, what string, commands ...[]string) {
	user := "USER"
	if status, ok := errors.AsType[*kubeapi.StatusError](err); ok {
		if _, rest, found := strings.Cut(status.Message, `User "`); found {
			user, _, _ = strings.Cut(rest, `"`)
		}
	}
	last := len(commands) - 1
	commands[last] = append(commands[last], "--user="+user)
	var lines []string
	for _, c := range commands {
		lines = append(lines, text.Quoted(c...))
	}
	e.WarnWith("cluster-forbidden", "as an administrator of the cluster: "+strings.Join(lines, " && "), "%s may not %s: %v", user, what, err)
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
	e.seen = e.flags(ctx, first)
	e.checkIssuer(e.seen)
	if e.want.Published != nil {
		e.checkKeys()
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

func (e *examination) checkIssuer(flags flags) {
	want := e.want.Issuer
	e.grouped(func(s signing) string { return s.own.Issuer }, func(s signing, addresses []string) {
		has := s.own.Issuer
		others := slices.DeleteFunc(slices.Clone(flags.issuers), func(i string) bool { return i == want })
		if len(flags.issuers) == 0 {
			others = []string{has}
		}
		repair := "restart every kube-apiserver with --service-account-issuer=" + want
		for _, other := range others {
			repair += " --service-account-issuer=" + other
		}
		repair += ", in this order: the first one signs, the others go on being accepted"
		accepted, how := flags.accepts(want, s.own.audiences)
		switch {
		case has == want:
			e.OK("cluster-issuer", "the cluster's tokens name the issuer URL, byte for byte")
		case accepted:
			if sorted := how.list; slices.IsSorted(sorted) && len(sorted) > 1 {
				repair += "; kubeadm 1.34.0 to 1.34.2 sorts repeated extraArgs, so that the order holds only in the manifest of the static pod"
			}
			e.FailWith("cluster-issuer-order", repair, "the cluster signs as %s, and accepts %s as well (%s)", has, want, how.source)
		default:
			repair += "; where there are several, in two rounds: first all of them with the old issuer before the new one, or each refuses the tokens of the other"
			e.FailWith("cluster-issuer-other", repair, "the cluster signs as %q, not as %q%s", has, want, difference(has, want))
		}
		e.at(addresses)
	})
}

// difference names a difference between two URLs that is easily overlooked.
func difference(a, b string) string {
	switch {
	case strings.TrimRight(a, "/") == strings.TrimRight(b, "/"):
		return ": they differ by a slash at the end"
	case strings.EqualFold(a, b):
		return ": they differ in letter case"
	}
	return ""
}

// checkKeys has each server's token verified with the published key that it names: equal key IDs alone prove nothing.
func (e *examination) checkKeys() {
	repair := text.Quoted(append([]string{"keypost", "key", "add", e.want.Issuer}, e.flagsOfAccess()...)...)
	e.grouped(func(s signing) string { return string(s.own.KeyID) }, func(s signing, addresses []string) {
		id := s.own.KeyID
		i := slices.IndexFunc(e.want.Published, func(k keystore.VerificationKey) bool { return k.ID() == id })
		switch {
		case i < 0:
			e.FailWith("cluster-key-unpublished", repair, "the cluster signs with key %s, which is not at the issuer's public URL", id)
		case !s.own.signedBy(e.want.Published[i]):
			e.Fail("cluster-key-swapped", "the cluster signs with another key than the one that is published as %s", id)
		default:
			e.OK("cluster-key", "the cluster signs with the published key %s", id)
		}
		e.at(addresses)
	})
}

// flagsOfAccess are those of keypost that name this cluster.
func (e *examination) flagsOfAccess() []string {
	words := []string{"--kubeconfig", cmp.Or(e.access.Kubeconfig, "FILE")}
	if e.access.Context != "" {
		words = append(words, "--context", e.access.Context)
	}
	return words
}

// checkAudiences looks for a cloud's audience among the cluster's own. A token that every pod has anyway is then good for the
// cloud, and kube-apiserver extends it to a year (see [extendable]); and a token that a pod hands to the cloud is good for the
// API server.
func (e *examination) checkAudiences() {
	e.grouped(func(s signing) string { return strings.Join(s.own.audiences, "\n") }, func(s signing, addresses []string) {
		var clouds, rest []string
		for _, a := range s.own.audiences {
			if e.isCloud(a) {
				clouds = append(clouds, a)
			} else {
				rest = append(rest, a)
			}
		}
		e.checkLacking(s)
		if len(clouds) == 0 {
			e.OK("cluster-audiences", "no cloud's audience is among those of --api-audiences")
			return
		}
		repair := "restart every kube-apiserver with --api-audiences=" + strings.Join(rest, ",")
		if len(rest) == 0 {
			repair = "restart every kube-apiserver without --api-audiences: it then has its issuers as audiences"
		}
		e.WarnWith("cluster-audience-cloud", repair, "a token that asks for no audience gets %s", strings.Join(s.own.audiences, ", "))
		e.at(addresses)
	})
}

// isCloud reports whether clouds accept tokens with an audience: it is one of those wanted, or one that they ask for by default.
func (e *examination) isCloud(aud string) bool {
	return !e.isOwn(aud) && slices.Contains(e.want.Audiences, aud) || audience.IsClouds(aud)
}

// checkKnown compares the published keys with those that the cluster itself trusts.
func (e *examination) checkKnown(ctx context.Context, first api) {
	if e.down || e.want.Published == nil {
		return
	}
	body, err := first.document(ctx, jwksPath)
	if kubeapi.IsStatus(err, http.StatusForbidden) {
		e.mayNot(err, "read the keys that the cluster trusts ("+jwksPath+")",
			[]string{"kubectl", "create", "clusterrolebinding", "keypost-verify-jwks", "--clusterrole=system:service-account-issuer-discovery"})
		return
	}
	var known []keystore.VerificationKey
	if err == nil {
		known, err = pubkey.Parse(first.client.URL()+jwksPath, body)
	}
	if err != nil {
		e.WarnWith("cluster-keys-unread", e.command("kubectl", "get", "--raw", jwksPath), "the keys that the cluster trusts cannot be read: %v", err)
		return
	}
	var strange []string
	for _, k := range e.want.Published {
		is := func(has keystore.VerificationKey) bool { return has.Fingerprint() == k.Fingerprint() }
		if !slices.ContainsFunc(known, is) && (e.want.Idle == nil || !e.want.Idle(k)) {
			strange = append(strange, string(k.ID()))
		}
	}
	if len(strange) == 0 {
		e.OK("cluster-keys", "the cluster knows every published key that may sign")
		return
	}
	retire := text.Quoted("keypost", "key", "retire", e.want.Issuer, strange[0], "--why", "no cluster has it")
	e.WarnWith("cluster-key-stranger", "if this cluster is to sign with it, add its public half to --service-account-key-file; if none is: "+retire,
		"clouds trust %s for this issuer, and the cluster does not", strings.Join(strange, " and "))
}

// flags are those of the kube-apiservers that concern tokens, where they can be seen: kubeadm's are pods.
type flags struct{ issuers []string }

// flags reads the command line of a kube-apiserver from its pod. Where there is none, or it may not be read, they are not known.
func (e *examination) flags(ctx context.Context, first api) flags {
	var pods struct {
		Items []struct {
			Spec struct {
				Containers []struct {
					Command []string `json:"command"`
					Args    []string `json:"args"`
				} `json:"containers"`
			} `json:"spec"`
		} `json:"items"`
	}
	const path = "/api/v1/namespaces/kube-system/pods?labelSelector=component%3Dkube-apiserver&limit=1"
	if err := first.read(ctx, path, &pods); err != nil || len(pods.Items) == 0 {
		return flags{}
	}
	var f flags
	for _, c := range pods.Items[0].Spec.Containers {
		for _, word := range slices.Concat(c.Command, c.Args) {
			if issuer, is := strings.CutPrefix(word, "--service-account-issuer="); is {
				f.issuers = append(f.issuers, issuer)
			}
		}
	}
	return f
}

// acceptance is where an issuer is listed, and the list.
type acceptance struct {
	source string
	list   []string
}

// accepts reports whether the kube-apiserver accepts tokens of an issuer: by its flags, else by the audiences that a token
// gets that asks for none. Those are its issuers unless --api-audiences says otherwise.
func (f flags) accepts(issuer string, audiences []string) (bool, acceptance) {
	if len(f.issuers) > 0 {
		return slices.Contains(f.issuers, issuer), acceptance{"--service-account-issuer of the pod kube-apiserver", f.issuers}
	}
	return slices.Contains(audiences, issuer), acceptance{"it is among the audiences of a token that asks for none, which are the issuers by default", audiences}
}
