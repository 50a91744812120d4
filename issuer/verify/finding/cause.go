package finding

import (
	"cmp"
	"sync"
)

// Cause is a row of the table: one thing that can be wrong with an issuer, a token, a cluster or an account. The table is the only
// place that holds what relying parties answer. A cause has a row only where its source shows that it happens to people.
type Cause struct {
	Code    string   `json:"code"` // of the findings that it leads to, and of their check
	Check   string   `json:"check"`
	Title   string   `json:"title"`             // what is seen, in a few words: "the certificate has expired"
	Effect  string   `json:"effect,omitempty"`  // why it matters, or what else follows from it; may be empty
	Repair  string   `json:"repair"`            // what to do; a finding may say it more exactly
	Source  string   `json:"source"`            // where it is written, or tested, that this happens
	Answers []Answer `json:"answers,omitempty"` // what relying parties answer when it is so
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

// NotCompared is the code of the cause that nothing was compared with a store.
const NotCompared = "not-compared"
