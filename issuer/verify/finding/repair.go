package finding

import "github.com/keypost/keypost/internal/text"

// SignAs returns how every kube-apiserver of a cluster comes to sign as an issuer. The others, which it accepts today, stay accepted:
// pods have tokens of theirs, and with one issuer too few each of them is logged out.
func SignAs(issuer string, others ...string) string {
	flags := "--service-account-issuer=" + text.Quoted(issuer)
	for _, other := range others {
		if other != issuer && other != "" {
			flags += " --service-account-issuer=" + text.Quoted(other)
		}
	}
	return "restart every kube-apiserver with " + flags + ", in this order: the first one signs, the others go on being accepted"
}

// InRounds goes after [SignAs] where the kube-apiservers do not accept the issuer yet.
const InRounds = "; where there are several, in two rounds: first all of them with the old issuer before the new one, or each refuses the tokens of the other"

// MakeToken is in repairs how a token is made, for whichever relying party; audience.Fit says the audiences of those that are declared.
const (
	MakeToken   = "kubectl create token SERVICEACCOUNT --audience " + AnyAudience
	AnyAudience = "AUDIENCE (sts.amazonaws.com for AWS, api://AzureADTokenExchange for Entra, for GCP an allowed audience of the provider, or //iam.googleapis.com/ and the provider's name where it has none)"
)
