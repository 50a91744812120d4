package cluster

import (
	"context"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/audience"
	"github.com/keypost/keypost/issuer/verify/finding"
)

func (e *examination) checkIssuer() {
	want := e.want.Issuer
	e.grouped(func(s signing) string { return s.own.Issuer }, func(s signing, addresses []string) {
		has := s.own.Issuer
		repair := finding.SignAs(want, e.issuers()...)
		source, accepted := "--service-account-issuer of the pod kube-apiserver", e.listed
		if len(accepted) == 0 {
			source, accepted = "it is among the audiences of a token that asks for none, which are the issuers by default", s.own.audiences
		}
		switch {
		case has == want:
			e.OK("cluster-issuer", "the cluster's tokens name the issuer URL, byte for byte")
		case slices.Contains(accepted, want):
			if slices.IsSorted(accepted) && len(accepted) > 1 {
				repair += "; kubeadm 1.34.0 to 1.34.2 sorts repeated extraArgs, so that the order holds only in the manifest of the static pod"
			}
			e.FailWith("cluster-issuer-other", repair, "the cluster signs as %s, and accepts %s as well (%s)", has, want, source)
		default:
			e.FailWith("cluster-issuer-other", repair+finding.InRounds, "the cluster signs as %q, not as %q%s", has, want, difference(has, want))
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

// issuers returns those that the cluster accepts, as far as can be told: by the flags of its pods and by what its servers sign as;
// where there are no pods to be seen, also by the URLs among its audiences, which are its issuers by default. One too many in
// --service-account-issuer does no harm, one too few refuses the tokens of pods that run.
func (e *examination) issuers() []string {
	all := slices.Clone(e.listed)
	for _, s := range e.found {
		all = appendNew(all, s.own.Issuer)
	}
	if len(e.listed) == 0 {
		for _, a := range e.ownAudiences() {
			if isURL(a) && !audience.IsClouds(a) {
				all = appendNew(all, a)
			}
		}
	}
	return all
}

// ownAudiences returns those that a token gets of any of the servers when it asks for none (--api-audiences).
func (e *examination) ownAudiences() []string {
	var all []string
	for _, s := range e.found {
		all = appendNew(all, s.own.audiences...)
	}
	return all
}

func isURL(s string) bool { return strings.HasPrefix(s, "https://") }

func appendNew(all []string, more ...string) []string {
	for _, s := range more {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// checkAudiences looks for a cloud's audience among the cluster's own. A token that every pod has anyway is then good for the
// cloud, and kube-apiserver extends it to a year (see [extendable]); and a token that a pod hands to the cloud is good for the
// API server. What the cluster accepts now and no cloud is known to ask for stays in every repair: tokens of running pods have it.
func (e *examination) checkAudiences() {
	e.grouped(func(s signing) string { return strings.Join(s.own.audiences, "\n") }, func(s signing, addresses []string) {
		e.checkLacking(s)
		is := slices.ContainsFunc(s.own.audiences, audience.IsClouds)
		i := slices.IndexFunc(s.own.audiences, e.isAsked)
		if !is && i < 0 {
			older := ""
			if len(e.listed) == 0 {
				older = "; whether one of older tokens is missing is not seen from here: a pod with such a token gets 401"
			}
			e.OK("cluster-audiences", "no cloud's audience is among those of --api-audiences%s", older)
			return
		}
		rest := slices.DeleteFunc(e.ownAudiences(), audience.IsClouds)
		repair := "restart every kube-apiserver with --api-audiences=" + text.Quoted(strings.Join(rest, ","))
		switch {
		case !is:
			repair = "if " + s.own.audiences[i] + " is that of a relying party, have that ask for another one, which is none of the cluster's own: what runs in the pods may need this one"
		case len(rest) == 0:
			repair = "restart every kube-apiserver without --api-audiences: it then has its issuers as audiences"
		}
		e.WarnWith("cluster-audience-cloud", repair, "a token that asks for no audience gets %s", strings.Join(s.own.audiences, ", "))
		e.at(addresses)
	})
}

// isAsked reports whether an audience may be that of a relying party that nobody knows by name: a token was made for it, it is not a
// URL as issuers are, and the token is not the one that every pod has anyway.
func (e *examination) isAsked(aud string) bool {
	return !isURL(aud) && slices.Contains(e.want.Audiences, aud) && !slices.Equal(e.want.Audiences, e.ownAudiences())
}

// listIssuers returns the issuers that a kube-apiserver has by its command line, where that can be seen: kubeadm's are pods.
func listIssuers(ctx context.Context, first api) (issuers []string) {
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
		return nil
	}
	for _, c := range pods.Items[0].Spec.Containers {
		for _, word := range slices.Concat(c.Command, c.Args) {
			if issuer, is := strings.CutPrefix(word, "--service-account-issuer="); is {
				issuers = append(issuers, issuer)
			}
		}
	}
	return issuers
}

// checkLacking compares the issuers that the cluster accepts with its audiences: those of the tokens that were signed before.
func (e *examination) checkLacking(s signing) {
	var lacking []string
	for _, issuer := range e.listed {
		if issuer != s.own.Issuer && !slices.Contains(s.own.audiences, issuer) {
			lacking = append(lacking, issuer)
		}
	}
	if len(lacking) > 0 {
		repair := "restart every kube-apiserver with --api-audiences=" + text.Quoted(strings.Join(appendNew(e.ownAudiences(), lacking...), ",")) + " until every pod has a new token"
		e.WarnWith("cluster-audience-lacking", repair, "the cluster accepts tokens of %s, and --api-audiences (%s) does not include what they have as audience by default",
			strings.Join(lacking, " and "), strings.Join(s.own.audiences, ", "))
	}
}
