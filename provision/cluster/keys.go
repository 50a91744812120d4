package cluster

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

// checkKeys has each server's token verified with the published key that it names: equal key IDs by themselves prove nothing.
func (e *examination) checkKeys() {
	repair := text.Quoted(append([]string{"keypost", "key", "add", e.want.Issuer}, e.flagsOfAccess()...)...)
	e.grouped(func(s signing) string { return string(s.own.KeyID) }, func(s signing, addresses []string) {
		id := s.own.KeyID
		i := slices.IndexFunc(e.want.Published, func(k keystore.VerificationKey) bool { return k.ID() == id })
		gone, left := e.want.gone(id)
		var stored keystore.Key
		if i >= 0 {
			stored = e.want.stored(e.want.Published[i])
		}
		switch {
		case left: // also where it is published still
			e.FailWith("cluster-key-gone", e.signWith(addresses), "the cluster signs with key %s, which was %s: it never returns", id, gone.Why)
		case i < 0:
			e.FailWith("cluster-key-unpublished", repair, "the cluster signs with key %s, which is not at the issuer's public URL", id)
		case !s.own.signedBy(e.want.Published[i]):
			e.FailWith("cluster-key-unpublished", "find out whose key is published (keypost key list ISSUER), and revoke it if it is not yours: keypost key revoke ISSUER KID --why REASON",
				"the cluster signs with another key than the one that is published as %s", id)
			e.About(string(id))
		case stored.State == keystore.Next:
			promote := text.Quoted("keypost", "rotate", "step", e.want.Issuer, "--wait")
			if e.want.Set.Rotation() == nil { // which says what comes then
				promote = text.Quoted("keypost", "rotate", "start", e.want.Issuer)
			}
			e.FailWith("cluster-key-next", e.signWith(addresses)+"; until this one is promoted: "+promote,
				"the cluster signs with key %s, which may not sign before it is promoted", id)
		case stored.State == keystore.Retired:
			when := "as soon as it is removed"
			if until, known := e.want.Set.Gates().TrustedUntil(stored, time.Now()); known {
				when = "once it is removed, which may be from " + until.UTC().Format(time.RFC3339) + " on"
			}
			e.WarnWith("cluster-key-gone", e.signWith(addresses), "the cluster signs with key %s, which is retired: the tokens are refused %s", id, when)
		default:
			e.OK("cluster-key", "the cluster signs with the published key %s", id)
		}
		e.at(addresses)
	})
}

// signWith repairs servers that sign with a key that is no more.
func (e *examination) signWith(addresses []string) string {
	key := "a key that is published and may sign; there is none: " + text.Quoted("keypost", "rotate", "status", e.want.Issuer)
	var may []string
	for _, k := range e.want.Published {
		_, gone := e.want.gone(k.ID())
		if state := e.want.stored(k).State; !gone && (state == "" || state == keystore.Active) {
			may = append(may, string(k.ID()))
		}
	}
	if len(may) > 0 {
		key = "the private half of the published key " + strings.Join(may, " or ")
	}
	return "restart the kube-apiserver at " + strings.Join(addresses, " and at ") + " with --service-account-signing-key-file and the controller-manager with " +
		"--service-account-private-key-file of " + key + "; its public half has to be in --service-account-key-file of every kube-apiserver before"
}

// trusted is what one kube-apiserver says it trusts.
type trusted struct {
	server server
	keys   []keystore.VerificationKey
	left   []pubkey.Left
	err    error
}

func (t trusted) lists(id keystore.KeyID) bool {
	return slices.ContainsFunc(t.keys, func(k keystore.VerificationKey) bool { return k.ID() == id }) ||
		slices.ContainsFunc(t.left, func(l pubkey.Left) bool { return l.ID == string(id) })
}

// checkKnown compares the keys that the servers sign with, with those that each server itself trusts.
func (e *examination) checkKnown(ctx context.Context, servers []server) {
	if e.down || len(servers) == 0 {
		return
	}
	all := make([]trusted, len(servers))
	var wait sync.WaitGroup
	for i, s := range servers {
		wait.Go(func() {
			all[i] = trusted{server: s}
			all[i].keys, all[i].left, all[i].err = s.api.keys(ctx, maxJWKS)
		})
	}
	wait.Wait()
	read := slices.DeleteFunc(slices.Clone(all), func(t trusted) bool { return t.err != nil })
	e.checkLackingKeys(read)
	e.checkRevokedKeys(read)
	if e.want.Published == nil {
		return
	}
	if err := all[0].err; kubeapi.IsStatus(err, http.StatusForbidden) {
		e.forbidden(err, "read the keys that the cluster trusts ("+jwksPath+")", "", "clusterrolebinding keypost-verify-jwks --clusterrole=system:service-account-issuer-discovery")
		return
	}
	if err := all[0].err; err != nil {
		e.WarnWith("cluster-servers-unasked", e.command("kubectl", "get", "--raw", jwksPath), "the keys that the cluster trusts cannot be read: %v", err)
		return
	}
	for _, l := range all[0].left {
		e.OK("cluster-keys", "of the keys that the cluster lists, %s", l)
	}
}

// checkRevokedKeys looks for servers that still trust a key that was revoked: clouds refuse its tokens, and the cluster accepts them.
func (e *examination) checkRevokedKeys(read []trusted) {
	for _, gone := range e.want.Set.Gone() {
		var trusting []string
		for _, t := range read {
			if slices.ContainsFunc(t.keys, func(k keystore.VerificationKey) bool { return k.Fingerprint() == gone.Fingerprint }) {
				trusting = append(trusting, t.server.address)
			}
		}
		if gone.Why != keystore.Revoked || len(trusting) == 0 {
			continue
		}
		at := strings.Join(trusting, " and at ")
		e.FailWith("cluster-key-revoked", "restart the kube-apiserver at "+at+" without key "+string(gone.ID)+
			" in --service-account-key-file, once every kube-apiserver signs with another; pods then need new tokens at once",
			"the kube-apiserver at %s accepts tokens of key %s, which was revoked", at, gone.ID)
		e.Findings[len(e.Findings)-1].At = trusting
	}
}

// checkLackingKeys looks for servers that do not trust a key with which one of them signs: they answer 401 to pods with its tokens.
// What stands behind a balancer's address is one of the others.
func (e *examination) checkLackingKeys(read []trusted) {
	if slices.ContainsFunc(read, func(t trusted) bool { return t.server.listed }) {
		read = slices.DeleteFunc(slices.Clone(read), func(t trusted) bool { return !t.server.listed })
	}
	e.grouped(func(s signing) string { return string(s.own.KeyID) }, func(s signing, signers []string) {
		var lacking []string
		for _, t := range read {
			if !t.lists(s.own.KeyID) {
				lacking = append(lacking, t.server.address)
			}
		}
		if len(lacking) == 0 {
			return
		}
		at := strings.Join(lacking, " and at ")
		e.FailWith("cluster-key-lacking", "restart the kube-apiserver at "+at+" with the public half of "+string(s.own.KeyID)+" in --service-account-key-file as well; until then let no kube-apiserver sign with it",
			"the kube-apiserver at %s does not trust key %s, with which the one at %s signs", at, s.own.KeyID, strings.Join(signers, " and at "))
		e.Findings[len(e.Findings)-1].At = lacking
	})
}
