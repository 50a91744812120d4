package verify

import "fmt"

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
	Party string // as a policy declares it: AWS, GCP, Entra, Vault or KubeAPIServer
	Text  string
}

// The relying parties whose answers the catalogue has, by the names that policies declare.
const (
	AWS           = "aws"
	GCP           = "gcp"
	Entra         = "entra"
	Vault         = "vault"
	KubeAPIServer = "kube-apiserver"
)

// Causes returns the catalogue, in the order in which a relying party meets the causes: what stands earlier may have led
// to what stands later. A cluster stands before its tokens.
func Causes() []Cause {
	var all []Cause
	for _, area := range [][]Cause{issuerCauses(), clusterCauses(), tokenCauses(), awsCauses(), comparisonCauses()} {
		all = append(all, area...)
	}
	return all
}

// CauseOf returns the cause with a code. It panics if there is none, which is an error of the program.
func CauseOf(code string) Cause {
	for _, c := range Causes() {
		if c.Code == code {
			return c
		}
	}
	panic(fmt.Sprintf("verify: no cause has the code %q", code)) //nolint:forbidigo // an error of the program, which a test of every code finds
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
