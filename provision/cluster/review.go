package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/finding"
)

const reviewPath = "/apis/authentication.k8s.io/v1/tokenreviews"

// review is what a kube-apiserver makes of a token that somebody shows it (TokenReview, authentication.k8s.io/v1). Its error is what
// its log has of a pod that gets 401; the pod itself is told nothing.
type review struct {
	Authenticated bool
	Error         string
	User          struct{ Username string }
}

func (a api) review(ctx context.Context, token string) (review, error) {
	request, err := json.Marshal(map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": map[string]any{"token": token},
	})
	if err != nil {
		return review{}, err
	}
	var reply struct{ Status review }
	err = a.create(ctx, reviewPath, request, &reply)
	r := reply.Status
	r.Error, r.User.Username = text.Hide(r.Error, token), text.Hide(r.User.Username, token)
	if status, ok := errors.AsType[*kubeapi.StatusError](err); ok {
		status.Message = text.Hide(status.Message, token)
	}
	return r, err
}

// reviewToken has each server review the token that is wanted.
func (e *examination) reviewToken(ctx context.Context, servers []server) {
	if e.want.Token == "" {
		return
	}
	var all finding.Report
	asked := 0
	for _, s := range servers {
		r, err := s.api.review(ctx, e.want.Token)
		switch {
		case kubeapi.IsStatus(err, http.StatusForbidden):
			e.forbidden(err, "have the API server review the token", "clusterrole", "--verb=create", "--resource=tokenreviews.authentication.k8s.io")
			return
		case err != nil && s.own: // that it does not answer is a finding by itself
			continue
		case err != nil:
			e.Warn("cluster-servers-unasked", "the kube-apiserver at %s was not asked what it makes of the token: %v", s.address, err)
			continue
		}
		asked++
		all.AddAt(e.judge(r), s.address)
	}
	for _, f := range all.Findings {
		if len(f.At) == asked {
			f.At = nil
		}
		e.Add(f)
	}
}

// refusedAudience is how the error of a review ends that is about the token's audience; before it looks at that, the server has
// verified the signature.
//
// Source: k8s.io/kubernetes pkg/serviceaccount/jwt.go
const refusedAudience = "is invalid for the target audiences"

func (e *examination) judge(r review) finding.Finding {
	token, err := readToken(e.want.Token)
	switch {
	case r.Authenticated:
		return finding.Good("cluster-review", "the API server accepts the token, as "+r.User.Username)
	case err != nil || !strings.Contains(r.Error, refusedAudience):
		return finding.CauseOf("cluster-review-failed").Finding(finding.Warn, "the API server refuses the token: "+r.Error, "")
	case slices.ContainsFunc(token.audiences, func(a string) bool { return a == token.Issuer || e.isOwn(a) }):
		return finding.CauseOf("cluster-audience-lacking").Finding(finding.Fail, "the API server refuses a token of its own cluster: "+r.Error, e.withAudiences(token.audiences))
	}
	return finding.Good("cluster-review", "the API server knows the token's key; for itself it refuses the token, which is for "+strings.Join(token.audiences, ", "))
}

// withAudiences repairs --api-audiences that do not have some.
func (e *examination) withAudiences(lacking []string) string {
	if len(e.found) == 0 {
		return "restart every kube-apiserver with " + text.Quoted(strings.Join(lacking, ",")) + " in --api-audiences as well"
	}
	return "restart every kube-apiserver with --api-audiences=" + text.Quoted(strings.Join(appendNew(e.ownAudiences(), lacking...), ",")) + " until every pod has a new token"
}

// checkLacking compares the issuers that the cluster accepts with its audiences: those of the tokens that were signed before.
func (e *examination) checkLacking(s signing) {
	var lacking []string
	for _, issuer := range e.seen.issuers {
		if issuer != s.own.Issuer && !slices.Contains(s.own.audiences, issuer) {
			lacking = append(lacking, issuer)
		}
	}
	if len(lacking) > 0 {
		e.WarnWith("cluster-audience-lacking", e.withAudiences(lacking), "the cluster accepts tokens of %s, and --api-audiences (%s) does not include what they have as audience by default",
			strings.Join(lacking, " and "), strings.Join(s.own.audiences, ", "))
	}
}
