package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
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

// podsPerPage bounds what is held in memory, here and in the kube-apiserver.
const podsPerPage = 500

// TokenLifetime measures the longest lifetime that the pods of a cluster ask for in projected service account tokens
// with one of the audiences. Ended pods count: their tokens may not have expired. It does not see tokens that are asked
// for by other ways (kubectl create token, a controller's TokenRequest), nor pods that are gone.
func TokenLifetime(ctx context.Context, a Access, audiences []string) (Lifetime, error) {
	_, server, err := a.open()
	if err != nil {
		return Lifetime{}, err
	}
	var l Lifetime
	for next := ""; ; {
		var page podPage
		path := fmt.Sprintf("/api/v1/pods?limit=%d&continue=%s", podsPerPage, url.QueryEscape(next))
		if err := server.read(ctx, path, &page); err != nil {
			return Lifetime{}, fmt.Errorf("list the pods: %w", err)
		}
		for _, p := range page.Items {
			l.count(p, audiences)
		}
		if next = page.Metadata.Continue; next == "" {
			return l, nil
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

func (l *Lifetime) count(p pod, audiences []string) {
	asks := false
	for _, v := range p.Spec.Volumes {
		for _, s := range v.Projected.Sources {
			if s.Token == nil || !slices.Contains(audiences, s.Token.Audience) {
				continue
			}
			asks = true
			lifetime := defaultLifetime
			if s.Token.Seconds != nil {
				lifetime = time.Duration(*s.Token.Seconds) * time.Second
			}
			if lifetime > l.Longest {
				l.Longest, l.Pod = lifetime, p.Metadata.Namespace+"/"+p.Metadata.Name
			}
		}
	}
	if asks {
		l.Pods++
	}
}

// ChosenIssuer reads spec.serviceAccountIssuer of OpenShift's authentication.config.openshift.io/cluster: what the
// cluster is told to be, which its kube-apiservers follow one after the other. openShift is false where there is no
// such API; issuer is "" where the cluster uses its own.
func ChosenIssuer(ctx context.Context, a Access) (issuer string, openShift bool, err error) {
	_, server, err := a.open()
	if err != nil {
		return "", false, err
	}
	// Which APIs there are is told to everybody; the resource of an API that does not exist is forbidden to most.
	const group = "/apis/config.openshift.io/v1"
	err = server.read(ctx, group, &struct{}{})
	if isStatus(err, http.StatusNotFound) {
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
