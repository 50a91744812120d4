package verify

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/test/golden"
)

const troubleshootingPreface = `# Troubleshooting by error text

Made from the table of causes by ` + "`KEYPOST_UPDATE=1 go test ./issuer/verify -run TestTroubleshooting`" + `: edit that.

Look for what your program printed; only its beginning stands here, and SDKs write words of their own before it. Commands that have no
` + "`--store`" + ` find the key sets by KEYPOST_STORE. Or let keypost look:

` + "```console" + `
$ kubectl logs app --tail 100 | keypost verify prod-a --store file:///srv/keysets --error -
` + "```" + `

It lists the causes that the error may have, and says which of them it finds. Here too, the causes that people meet most stand first.
The links lead to each cause's repair and source.

- [AWS STS and IAM](#aws-sts-and-iam) · [AWS SDKs](#aws-sdks) · [Google Cloud](#google-cloud) · [Microsoft Entra](#microsoft-entra) · [Vault](#vault) · [kube-apiserver](#kube-apiserver)

Nothing here? Please report the message, so that it gets its place.

`

// printers are the parts of docs/troubleshooting.md.
var printers = []struct {
	title, text string
	has         func(party string, causes []finding.Cause) bool
}{
	{"AWS STS and IAM", "", func(p string, causes []finding.Cause) bool { return p == finding.AWS && !ofSDK(causes) }},
	{
		"AWS SDKs", "The SDK in the pod, or the AWS CLI, printed this itself: STS was not asked, or did not answer.",
		func(p string, causes []finding.Cause) bool { return p == finding.AWS && ofSDK(causes) },
	},
	{"Google Cloud", "Of its Security Token Service, through any client library.", func(p string, _ []finding.Cause) bool { return p == finding.GCP }},
	{"Microsoft Entra", "", func(p string, _ []finding.Cause) bool { return p == finding.Entra }},
	{"Vault", "Of the JWT auth method; OpenBao says the same.", func(p string, _ []finding.Cause) bool { return p == finding.Vault }},
	{
		"kube-apiserver", "In its log, or what kubectl and client-go make of 401. It is a relying party of its own tokens, and of another cluster's with `--authentication-config`.",
		func(p string, _ []finding.Cause) bool { return p == finding.KubeAPIServer },
	},
}

// ofSDK reports whether the causes of a message are those that an SDK itself has.
func ofSDK(causes []finding.Cause) bool {
	return !slices.ContainsFunc(causes, func(c finding.Cause) bool {
		return !strings.HasPrefix(c.Code, "aws-pod-") && c.Code != "aws-sts-unreachable"
	})
}

// printed are messages that one party prints for the same causes.
type printed struct {
	party    string
	messages []string
	causes   []finding.Cause
}

// TestTroubleshooting: docs/troubleshooting.md has every message that the table knows, with its causes.
func TestTroubleshooting(t *testing.T) {
	var b strings.Builder
	b.WriteString(troubleshootingPreface)
	all, written := allPrinted(), 0
	for _, p := range printers {
		fmt.Fprintf(&b, "## %s\n\n", p.title)
		if p.text != "" {
			b.WriteString(p.text + "\n\n")
		}
		for _, x := range all {
			if p.has(x.party, x.causes) {
				writePrinted(&b, x)
				written++
			}
		}
	}
	if written != len(all) {
		t.Errorf("%d of %d groups of messages have a place", written, len(all))
	}
	golden.Same(t, "../../docs/troubleshooting.md", strings.TrimRight(b.String(), "\n")+"\n")
}

// allPrinted returns every message once, those with the same causes together, in the order in which a relying party meets the first
// of them.
func allPrinted() (all []printed) {
	causes := map[finding.Answer][]finding.Cause{}
	var answers []finding.Answer
	for _, c := range finding.Causes() {
		for _, a := range c.Answers {
			if causes[a] == nil {
				answers = append(answers, a)
			}
			causes[a] = append(causes[a], c)
		}
	}
	same := func(a, b finding.Cause) bool { return a.Code == b.Code }
	for _, a := range answers {
		i := slices.IndexFunc(all, func(p printed) bool { return p.party == a.Party && slices.EqualFunc(p.causes, causes[a], same) })
		if i < 0 {
			all = append(all, printed{a.Party, nil, causes[a]})
			i = len(all) - 1
		}
		all[i].messages = append(all[i].messages, a.Text)
	}
	return all
}

// mostInFull are causes that a message has with each repair beside it; where there are more, only the likeliest have it.
const (
	mostInFull = 14
	likeliest  = 5
)

func writePrinted(b *strings.Builder, p printed) {
	fmt.Fprintf(b, "### %s\n\n", code(p.messages[0]))
	for i, m := range p.messages[1:] {
		if i == 0 {
			b.WriteString("The same causes have:\n\n")
		}
		b.WriteString("- " + code(m) + "\n")
		if i == len(p.messages)-2 {
			b.WriteString("\n")
		}
	}
	if len(p.causes) > 1 {
		fmt.Fprintf(b, "%d causes. Which it is: %s.\n\n", len(p.causes), telling(p.causes))
	}
	first, rest := slices.Clone(p.causes), []finding.Cause(nil)
	slices.SortStableFunc(first, finding.ByLikelihood)
	if len(first) > mostInFull {
		first = first[:likeliest]
		rest = slices.DeleteFunc(slices.Clone(p.causes), func(c finding.Cause) bool { return slices.ContainsFunc(first, same(c)) })
	}
	b.WriteString("| cause | repair |\n|---|---|\n")
	for _, c := range first {
		fmt.Fprintf(b, "| [%s](../issuer/verify/README.md#%s) | %s |\n", inCell(title(c)), c.Code, inCell(commands(c.Repair)))
	}
	b.WriteString("\n")
	if rest == nil {
		return
	}
	b.WriteString("The others, by the check of `keypost verify` that finds them:\n\n| check | what may be wrong |\n|---|---|\n")
	for i := 0; i < len(rest); {
		var links []string
		check := rest[i].Check
		for ; i < len(rest) && rest[i].Check == check; i++ {
			links = append(links, fmt.Sprintf("[%s](../issuer/verify/README.md#%s)", inCell(rest[i].Title), rest[i].Code))
		}
		fmt.Fprintf(b, "| %s | %s |\n", check, strings.Join(links, " · "))
	}
	b.WriteString("\n")
}

// same returns a function that reports whether a cause is c.
func same(c finding.Cause) func(finding.Cause) bool {
	return func(other finding.Cause) bool { return other.Code == c.Code }
}

// title begins with a capital letter, unless it begins with a name such as jwks_uri.
func title(c finding.Cause) string {
	if first, _, _ := strings.Cut(c.Title, " "); strings.ContainsAny(first, "_-") {
		return c.Title
	}
	return sentence(c.Title)
}

// telling returns the command that tells causes apart.
func telling(causes []finding.Cause) string {
	has := map[string]bool{}
	for _, c := range causes {
		has[c.Area()] = true
	}
	command := "keypost verify NAME --store STORE"
	if has["The cluster"] {
		command += " --kubeconfig FILE"
	}
	if has["The token"] {
		command += " --token-file FILE"
	}
	if has["AWS"] {
		command += " --role-arn ARN"
		if !has["The token"] {
			command += " --token-file FILE"
		}
	}
	command = "`" + command + "`"
	if slices.ContainsFunc(causes, func(c finding.Cause) bool { return c.Check == "aws-pod" }) {
		command += ", and `kubectl exec POD -- env` for what the SDK finds in the pod"
	}
	return command
}

func inCell(s string) string { return strings.NewReplacer("|", "\\|", "<", "\\<").Replace(s) }
