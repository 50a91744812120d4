package finding

import (
	"strings"
	"sync"
)

// Cause is a row of the catalogue: one thing that can be wrong with an issuer, a token, a cluster or an account. The
// catalogue is the only place that holds what relying parties answer.
type Cause struct {
	Code, Check string   // of the findings that it leads to
	Title       string   // what is wrong, in a few words: "the certificate has expired"
	Answers     []Answer // what relying parties answer when it is so
	Effect      string   // what else follows from it; may be empty
	Repair      string   // what to do; a finding may say it more exactly
}

// Answer is what one relying party prints, in its own words: the beginning of its message, or its code.
type Answer struct {
	Party string `json:"party"` // as a policy declares it: AWS, GCP, Entra, Vault or KubeAPIServer
	Text  string `json:"text"`
}

// The relying parties whose answers the catalogue has, by the names that policies declare.
const (
	AWS           = "aws"
	GCP           = "gcp"
	Entra         = "entra"
	Vault         = "vault"
	KubeAPIServer = "kube-apiserver"
)

// Area is a part of the catalogue.
type Area struct {
	Title  string
	Causes []Cause
}

// Areas returns the catalogue, in the order in which a relying party meets the causes: what stands earlier may have led to
// what stands later. A cluster stands before its tokens.
func Areas() []Area {
	return []Area{
		{"The issuer", issuerCauses()}, {"The cluster", clusterCauses()}, {"The token", tokenCauses()}, {"AWS", awsCauses()}, {"The comparison", comparisonCauses()},
	}
}

// Causes returns the causes of all areas.
func Causes() []Cause {
	var all []Cause
	for _, a := range Areas() {
		all = append(all, a.Causes...)
	}
	return all
}

// byCode has the catalogue as CauseOf looks it up: a hostile document leads to thousands of findings.
var byCode = sync.OnceValue(func() map[string]Cause { //nolint:gochecknoglobals // built once, and never changed
	all := map[string]Cause{}
	for _, c := range Causes() {
		all[c.Code] = c
	}
	return all
})

// CauseOf returns the cause with a code. A code that the catalogue does not have is an error of the program; a running program
// says what it can.
func CauseOf(code string) Cause {
	if c, known := byCode()[code]; known {
		return c
	}
	return Cause{Code: code, Check: code, Title: code, Repair: "this is an error of keypost; please report it"}
}

// RepairWith returns the repair of a cause with other words in the place of some: pairs of old and new ones.
func RepairWith(code string, oldNew ...string) string {
	return strings.NewReplacer(oldNew...).Replace(CauseOf(code).Repair)
}

// Finding returns a finding of the cause. An empty repair is that of the cause.
func (c Cause) Finding(s Severity, evidence, repair string) Finding {
	if repair == "" {
		repair = c.Repair
	}
	return Finding{
		Code: c.Code, Check: c.Check, Severity: s, Evidence: clean(evidence),
		Answers: c.Answers, Effect: clean(c.Effect), Repair: clean(repair),
	}
}
