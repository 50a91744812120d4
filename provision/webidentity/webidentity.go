// Package webidentity judges what AWS makes of a web identity token: it compares the IAM OIDC identity provider of the token's
// issuer and the trust policy of a role, as IAM shows them, with what the token says. It reads only, and changes nothing:
// each finding has the command that does.
package webidentity

import (
	"crypto/sha1" //nolint:gosec // IAM's thumbprints are SHA-1
	"crypto/x509"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/audience"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/iampolicy"
)

// Attempt is a role that the pods of an issuer's cluster are to assume.
type Attempt struct {
	Role        string              // name
	ProviderARN string              // that the issuer's provider has to have; its account is the role's
	Issuer      string              // URL
	Subject     string              // a token's sub; empty if there is no token
	Audience    string              // a token's azp, else its aud; empty if there is no token
	ClientIDs   []string            // of the issuer's provider; nil if they are not known
	Chain       []*x509.Certificate // what the issuer's host sends, the leaf first; nil if that is not known
	PublicCA    bool                // the system's CAs trust Chain
	OwnCA       bool                // somebody says that it is a CA of their own
}

// examination collects findings.
type examination struct {
	Attempt
	finding.Report
}

// Command returns a command line of the AWS CLI for IAM: of a verb, and of flags each with its value. A value that begins with a
// hyphen, as an audience may, is joined to its flag: by itself the CLI takes it for another one.
func Command(verb string, flags ...string) string {
	words := []string{"aws", "iam", verb}
	for pair := range slices.Chunk(flags, 2) {
		if strings.HasPrefix(pair[len(pair)-1], "-") {
			pair = []string{strings.Join(pair, "=")}
		}
		words = append(words, pair...)
	}
	return text.Quoted(words...)
}

// checkProvider compares the provider with the token, and with what the trust policy asks for; nil if that is not known.
func (e *examination) checkProvider(p awsiam.ProviderState, trust *iampolicy.Document) {
	e.checkAudience(p, trust)
	e.checkThumbprint(p)
}

// noProvider names those of the account's providers, given by their URLs, that may have been made, or are trusted, in place of the one
// that is missing. trust is the role's; nil if it is not known.
func (a Attempt) noProvider(urls []string, trust *iampolicy.Document) finding.Finding {
	host, _, _ := strings.Cut(iampolicy.HostPath(a.Issuer), "/")
	account, _, _ := strings.Cut(a.ProviderARN, iampolicy.HostPath(a.Issuer))
	evidence := "there is no " + a.ProviderARN
	var near []string
	for _, url := range urls {
		has, _, _ := strings.Cut(iampolicy.HostPath(url), "/")
		if strings.EqualFold(has, host) || trust != nil && trust.Names(account+iampolicy.HostPath(url)) {
			near = append(near, url)
		}
	}
	if len(near) > 0 {
		evidence += "; the account has one for " + strings.Join(near, ", ") + ": host, path, case and a slash at the end count"
	}
	return finding.CauseOf("aws-provider-missing").Finding(finding.Fail, evidence, a.createProvider())
}

// createProvider returns the command that makes the provider.
func (a Attempt) createProvider() string {
	words := []string{"--url", a.Issuer, "--client-id-list", usual}
	if id := a.audience(); id != "" {
		words[len(words)-1] = id
	}
	if a.privateCA() {
		words = append(words, "--thumbprint-list", thumbprint(a.Chain[len(a.Chain)-1]))
	}
	return Command("create-open-id-connect-provider", words...)
}

// checkAudience compares the token's audience, or those that the role asks for, with the provider's client IDs.
func (e *examination) checkAudience(p awsiam.ProviderState, trust *iampolicy.Document) {
	var asked []string // by the trust policy
	if trust != nil {
		asked = trust.AsksFor(e.identity(), "aud")
	}
	usable := slices.DeleteFunc(slices.Clone(asked), func(a string) bool { return !slices.Contains(p.ClientIDs, a) })
	clients := strings.Join(p.ClientIDs, ", ")
	switch {
	case e.Audience == "" && (len(asked) == 0 || len(usable) > 0), slices.Contains(p.ClientIDs, e.Audience):
		e.OK("aws-client-id", "the provider's client IDs are %s", clients)
	case e.Audience == "":
		repair := e.addClientID(asked[0])
		if audience.MayBeClusters(asked[0], e.Issuer) {
			repair = "have the role ask for " + usual + ": " + e.edit()
		}
		e.FailWith("aws-client-id-missing", repair, "the role asks for the audience %s, and the provider's client IDs are %s", strings.Join(asked, " or "), clients)
	default:
		repair := e.addClientID(e.audience())
		if len(usable) > 0 && !slices.Contains(asked, e.Audience) {
			repair = e.askFor(usable[0])
		} else if e.Audience != e.audience() {
			if repair = e.askFor(usual); !slices.Contains(p.ClientIDs, usual) {
				repair += " && " + e.addClientID(usual)
			}
		}
		e.FailWith("aws-client-id-missing", repair, "the token's audience is %q, and the provider's client IDs are %s", e.Audience, clients)
	}
}

// usual is the audience that AWS's own tools ask for.
const usual = "sts.amazonaws.com"

// audience returns the one that a token for AWS is to have: the token's own, unless that is the cluster's. No repair has AWS trust that
// one, as every pod has a token with it anyway.
func (a Attempt) audience() string {
	if a.Audience != "" && audience.MayBeClusters(a.Audience, a.Issuer) {
		return usual
	}
	return a.Audience
}

func (e *examination) addClientID(id string) string {
	return Command("add-client-id-to-open-id-connect-provider", "--open-id-connect-provider-arn", e.ProviderARN, "--client-id", id)
}

// askFor returns how the pod gets a token with an audience.
func (e *examination) askFor(aud string) string {
	namespace, account := "NAMESPACE", "SERVICEACCOUNT"
	if found := strings.Split(e.Subject, ":"); len(found) == 4 && strings.HasPrefix(e.Subject, subjectPrefix) {
		namespace, account = found[2], found[3]
	}
	return "ask for another audience, with audience in the projected volume or " +
		text.Quoted("kubectl", "create", "token", account, "--namespace", namespace, "--audience", aud)
}

func (e *examination) identity() iampolicy.Identity {
	return iampolicy.Identity{ProviderARN: e.ProviderARN, Issuer: e.Issuer, Subject: e.Subject, Audience: e.Audience}
}

func (a Attempt) privateCA() bool { return len(a.Chain) > 0 && !a.PublicCA }

func thumbprint(c *x509.Certificate) string {
	sum := sha1.Sum(c.Raw) //nolint:gosec // IAM's thumbprints are SHA-1
	return hex.EncodeToString(sum[:])
}

// checkThumbprint compares the provider's thumbprints with the certificates that the issuer's host sends. AWS does so only if
// its own CAs do not vouch for them.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
func (e *examination) checkThumbprint(p awsiam.ProviderState) {
	if !e.privateCA() && (!e.OwnCA || len(e.Chain) == 0) {
		return
	}
	var known []string
	for _, t := range p.Thumbprints {
		known = append(known, strings.ToLower(t))
	}
	if slices.ContainsFunc(e.Chain, func(c *x509.Certificate) bool { return slices.Contains(known, thumbprint(c)) }) {
		e.OK("aws-thumbprint", "the provider has the thumbprint of a certificate that the issuer's host sends")
		return
	}
	last := e.Chain[len(e.Chain)-1]
	repair := Command("update-open-id-connect-provider-thumbprint", "--open-id-connect-provider-arn", e.ProviderARN, "--thumbprint-list", thumbprint(last))
	has := "the provider has the thumbprints " + strings.Join(known, ", ")
	if !e.privateCA() {
		e.WarnWith("aws-thumbprint-stale", repair, "%s, and none of a certificate that the issuer's host sends; AWS goes by them unless it trusts this CA by itself (%s)", has, last.Subject)
		return
	}
	e.FailWith("aws-thumbprint-stale", repair, "the issuer's certificate comes from a private CA (%s), and %s", last.Subject, has)
}
