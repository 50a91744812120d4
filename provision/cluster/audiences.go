package cluster

import (
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/text"
)

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
	for _, issuer := range e.listed {
		if issuer != s.own.Issuer && !slices.Contains(s.own.audiences, issuer) {
			lacking = append(lacking, issuer)
		}
	}
	if len(lacking) > 0 {
		e.WarnWith("cluster-audience-lacking", e.withAudiences(lacking), "the cluster accepts tokens of %s, and --api-audiences (%s) does not include what they have as audience by default",
			strings.Join(lacking, " and "), strings.Join(s.own.audiences, ", "))
	}
}
