package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/issuer/verify/audience"
	"github.com/keypost/keypost/keystore/rotation"
)

// Lifetime is the longest time for which pods may hold a token.
type Lifetime struct {
	Longest time.Duration // 0: no pod asks for such a token
	Pod     string        // NAMESPACE/NAME of one that asks for it
	Pods    int           // how many ask for such a token at all
}

// defaultLifetime is what a projected token lives for when its volume does not say (API reference,
// ServiceAccountTokenProjection).
const defaultLifetime = time.Hour

// What kube-apiserver makes of a token that a pod asks for with exactly extendable and an audience of the cluster's own:
// it lives for extended, for the sake of clients that read it once (--service-account-extend-token-expiration, on by
// default; k8s.io/kubernetes pkg/registry/core/serviceaccount/storage/token.go).
const (
	extendable = 3607 * time.Second
	extended   = 365 * 24 * time.Hour
)

// podsPerPage bounds what is held in memory, here and in the kube-apiserver.
const podsPerPage = 500

// TokenLifetime returns the longest lifetime that the pods of a cluster ask for in projected service account tokens
// with one of the audiences; where one of them is an audience of the cluster itself, the tokens that every pod has for
// it count too. Ended pods count: their tokens may not have expired. It does not see tokens that are requested in
// other ways (kubectl create token, a controller's TokenRequest), nor those of deleted pods.
func TokenLifetime(ctx context.Context, a Access, audiences []string) (Lifetime, error) {
	return lifetime(ctx, a, func(audience string, _ bool) bool { return slices.Contains(audiences, audience) })
}

// Lifetime implements [rotation.Cluster]: the longest that pods ask for in tokens for others than the cluster, or as much of it as
// the kube-apiservers grant (--service-account-max-token-expiration), each of which is asked for such a token, which nobody
// accepts. A user who may not list pods learns nothing.
func (c Signing) Lifetime(ctx context.Context) (rotation.Lifetime, error) {
	asked, err := lifetime(ctx, c.Access, func(aud string, own bool) bool { return !own || audience.IsClouds(aud) })
	if refused, is := errors.AsType[refusal](err); is && kubeapi.IsStatus(refused.StatusError, http.StatusForbidden) {
		return rotation.Lifetime{Unknown: oneLine(err).Error()}, nil
	}
	if err != nil || asked.Pods == 0 {
		return rotation.Lifetime{}, err
	}
	l := rotation.Lifetime{Longest: asked.Longest, For: "pod " + asked.Pod}
	if l.Longest > minLifetime && l.Longest != extended { // that one the flag does not shorten
		l.Longest, err = c.granted(ctx, l.Longest)
	}
	return l, err
}

// granted returns the longest life that a kube-apiserver gives a token that asks for d.
func (c Signing) granted(ctx context.Context, d time.Duration) (longest time.Duration, err error) {
	all, err := Signers(ctx, c.Access, d, mintedFor)
	for _, s := range all {
		longest = max(longest, s.Lifetime)
	}
	return longest, err
}

// lifetime returns the longest that pods ask for in tokens with an audience that matters.
func lifetime(ctx context.Context, a Access, matters func(audience string, own bool) bool) (Lifetime, error) {
	namespace, name, err := a.account()
	if err != nil {
		return Lifetime{}, err
	}
	_, server, err := a.open()
	if err != nil {
		return Lifetime{}, err
	}
	own, err := server.mint(ctx, namespace, name, request{})
	if err != nil {
		return Lifetime{}, fmt.Errorf("have the cluster mint a token with its own audiences: %w", err)
	}
	c := count{audience: matters, own: own.audiences}
	for next := ""; ; {
		var page podPage
		path := fmt.Sprintf("/api/v1/pods?limit=%d&continue=%s", podsPerPage, url.QueryEscape(next))
		if err := server.read(ctx, path, &page); err != nil {
			return Lifetime{}, fmt.Errorf("list the pods: %w", err)
		}
		for _, p := range page.Items {
			c.add(p)
		}
		if next = page.Metadata.Continue; next == "" {
			return c.Lifetime, nil
		}
	}
}

type podPage struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []pod `json:"items"`
}

type pod struct {
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Volumes []struct {
			Projected struct {
				Sources []struct {
					Token *projectedToken `json:"serviceAccountToken"`
				} `json:"sources"`
			} `json:"projected"`
		} `json:"volumes"`
	} `json:"spec"`
}

type projectedToken struct {
	Audience string `json:"audience"`
	Seconds  *int64 `json:"expirationSeconds"`
}

// count collects the lifetimes that pods ask for.
type count struct {
	Lifetime
	audience func(audience string, own bool) bool // whether one matters
	own      []string                             // of the cluster
}

func (c *count) add(p pod) {
	asks := false
	for _, v := range p.Spec.Volumes {
		for _, s := range v.Projected.Sources {
			if s.Token == nil {
				continue
			}
			audiences := []string{s.Token.Audience}
			if s.Token.Audience == "" { // it gets the cluster's own
				audiences = c.own
			}
			if !slices.ContainsFunc(audiences, func(a string) bool { return c.audience(a, slices.Contains(c.own, a)) }) {
				continue
			}
			asks = true
			if d := c.lifetime(*s.Token); d > c.Longest {
				c.Longest, c.Pod = d, p.Metadata.Namespace+"/"+p.Metadata.Name
			}
		}
	}
	if asks {
		c.Pods++
	}
}

func (c *count) lifetime(t projectedToken) time.Duration {
	d := defaultLifetime
	if t.Seconds != nil {
		d = time.Duration(*t.Seconds) * time.Second
	}
	if d == extendable && (t.Audience == "" || slices.Contains(c.own, t.Audience)) {
		return extended
	}
	return d
}

// ChosenIssuer reads spec.serviceAccountIssuer of OpenShift's authentication.config.openshift.io/cluster: the configured
// issuer, which the kube-apiservers take over one after the other. openShift is false where there is no
// such API; issuer is "" where the cluster uses its own.
func ChosenIssuer(ctx context.Context, a Access) (issuer string, openShift bool, err error) {
	_, server, err := a.open()
	if err != nil {
		return "", false, err
	}
	// Everybody may list the APIs. Most users get 403, not 404, for the resource of an API that does not exist.
	const group = "/apis/config.openshift.io/v1"
	err = server.read(ctx, group, &struct{}{})
	if kubeapi.IsStatus(err, http.StatusNotFound) {
		return "", false, nil
	}
	var authentication struct {
		Spec struct {
			Issuer string `json:"serviceAccountIssuer"`
		} `json:"spec"`
	}
	if err == nil {
		err = server.read(ctx, group+"/authentications/cluster", &authentication)
	}
	if err != nil {
		return "", false, fmt.Errorf("read OpenShift's authentication/cluster: %w", err)
	}
	return authentication.Spec.Issuer, true, nil
}
