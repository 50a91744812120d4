package finding

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// Cause is a row of the table: one thing that can be wrong with an issuer, a token, a cluster or an account. The table is the only
// place that holds what relying parties answer. A cause has a row only where its source shows that it happens to people.
type Cause struct {
	Code, Check string   // of the findings that it leads to
	Title       string   // what is seen, in a few words: "the certificate has expired"
	Effect      string   // why it matters, or what else follows from it; may be empty
	Repair      string   // what to do; a finding may say it more exactly
	Source      string   // where it is written, or tested, that this happens
	Answers     []Answer // what relying parties answer when it is so
}

// Answer is what one relying party prints, in its own words: the beginning of its message, or its code.
type Answer struct {
	Party string `json:"party"` // as a policy declares it: AWS, GCP, Entra, Vault or KubeAPIServer
	Text  string `json:"text"`
}

// The relying parties whose answers the table has, by the names that policies declare.
const (
	AWS           = "aws"
	GCP           = "gcp"
	Entra         = "entra"
	Vault         = "vault"
	KubeAPIServer = "kube-apiserver"
)

// Area returns what a cause is about: the issuer, the cluster, the token or AWS.
func (c Cause) Area() string {
	switch prefix, _, _ := strings.Cut(c.Check, "-"); prefix {
	case "cluster":
		return "The cluster"
	case "token":
		return "The token"
	case "aws":
		return "AWS"
	}
	return "The issuer"
}

// byCode has the place of each cause in the table: a hostile document leads to thousands of findings.
var byCode = sync.OnceValue(func() map[string]int { //nolint:gochecknoglobals // built once, and never changed
	all := map[string]int{}
	for i, c := range table() {
		all[c.Code] = i
	}
	return all
})

var table = sync.OnceValue(Causes) //nolint:gochecknoglobals // built once, and never changed

// CauseOf returns the cause with a code. A code that the table does not have is an error of the program; a running program
// says what it can.
func CauseOf(code string) Cause {
	if i, known := byCode()[code]; known {
		return table()[i]
	}
	return Cause{Code: code, Check: code, Title: code, Repair: "this is an error of keypost; please report it"}
}

// Finding returns a finding of the cause. An empty repair is that of the cause.
func (c Cause) Finding(s Severity, evidence, repair string) Finding {
	return Finding{
		Code: c.Code, Check: c.Check, Severity: s, Evidence: clean(evidence),
		Answers: c.Answers, Effect: clean(c.Effect), Repair: clean(cmp.Or(repair, c.Repair)),
	}
}

// likely are the causes that people meet most, the likeliest first: an issuer that only its own network can read, a key that nobody
// published, an issuer URL or a trust policy that names something else.
//
// Sources: https://repost.aws/knowledge-center/iam-sts-invalididentitytoken,
// https://azure.github.io/azure-workload-identity/docs/troubleshooting.html, and what users of OpenShift with STS ask.
func likely() []string {
	return []string{
		"discovery-forbidden", "connection-dropped", "dns-hidden", "token-kid-unknown", "cluster-key-unpublished",
		"aws-provider-missing", "cluster-issuer-other", "token-issuer-other", "aws-trust-subject", "aws-trust-audience",
		"aws-trust-wildcard", "aws-trust-provider", "aws-role-missing", "aws-client-id-missing", "token-aud-cluster", "token-expired",
		"aws-thumbprint-stale", "tls-untrusted",
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
	return c.Area() != "The issuer" || c.Check == "url" || slices.Contains(c.Needs(), NeedStore)
}

// Need is what a look has to be given before it can see a cause, as it is said to anyone who looks. Without it, that nothing was found says
// nothing.
type Need string

// What looks need.
const (
	NeedStore   Need = "compare with the key set: give --store STORE"
	NeedCluster Need = "give --kubeconfig FILE"
	NeedToken   Need = "give --token-file FILE with a token that a pod has" //nolint:gosec // words for people
	NeedRole    Need = "give --role-arn ARN"
	NeedAssume  Need = "give --assume"
	NeedPod     Need = "look into the pod: its files, its network and region, what its program asks for, and what its role may do"
)

// Needs returns what a look needs to be given to see the cause; a cause of what an issuer serves needs nothing.
func (c Cause) Needs() []Need {
	switch c.Code {
	case NotCompared:
		return nil
	case "cluster-audience-lacking": // a fresh token does not show what older ones have
		return []Need{NeedCluster, NeedToken}
	}
	switch c.Check {
	case "stored-keys", "origin", "active-key", "uploads":
		return []Need{NeedStore}
	case "aws-pod", "aws-permissions":
		return []Need{NeedPod}
	case "aws-assume":
		return []Need{NeedRole, NeedToken, NeedAssume}
	case "aws-client-id", "aws-trust":
		return []Need{NeedRole, NeedToken}
	}
	return map[string][]Need{"AWS": {NeedRole}, "The cluster": {NeedCluster}, "The token": {NeedToken}}[c.Area()]
}

// NotCompared is the code of the cause that nothing was compared with a store.
const NotCompared = "not-compared"
