package finding

import (
	"cmp"
	"slices"
)

// likely are the causes that people meet most, the likeliest first: an issuer that only its own network can read, a key that nobody
// published, an issuer URL or a trust policy that names something else.
//
// Sources: https://repost.aws/knowledge-center/iam-sts-invalididentitytoken,
// https://azure.github.io/azure-workload-identity/docs/troubleshooting.html, and what users of OpenShift with STS ask.
func likely() []string {
	return []string{
		"discovery-forbidden", "connection-dropped", "dns-hidden", "token-kid-unknown", "cluster-key-unpublished",
		"aws-provider-missing", "aws-account-other", "token-issuer-slash", "cluster-issuer-other", "token-issuer-other",
		"aws-trust-subject", "aws-trust-audience", "aws-trust-wildcard", "aws-trust-provider", "aws-role-missing",
		"aws-client-id-missing", "token-aud-cluster", "token-expired", "aws-thumbprint-stale", "tls-incomplete",
	}
}

// ByLikelihood compares causes: those that people meet most come first.
func ByLikelihood(a, b Cause) int {
	order := likely()
	rank := func(c Cause) int {
		if i := slices.Index(order, c.Code); i >= 0 {
			return i
		}
		return len(order)
	}
	return cmp.Compare(rank(a), rank(b))
}

// SeenFromHere reports whether a look from one machine rules the cause out. The way to an issuer, and what it answers, may differ
// for a cloud that comes from the internet.
func (c Cause) SeenFromHere() bool {
	ofIssuer := slices.ContainsFunc(issuerCauses(), func(o Cause) bool { return o.Code == c.Code })
	return !ofIssuer || c.Check == "url" || slices.Contains(c.Needs(), NeedStore)
}
