package awsiam

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/provision/iampolicy"
)

// AWS's limits (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html and the API's pages).
const (
	urlLimit         = 255
	clientIDLimit    = 255 // characters
	clientIDCount    = 100
	thumbprintCount  = 5
	tagCount         = 50
	tagKeyLimit      = 128
	tagValueLimit    = 256
	descriptionLimit = 1000
	attachedCount    = 25  // 20 unless the quota is raised
	subjectLimit     = 255 // of SubjectFromWebIdentityToken in STS's reply
)

// Check returns an error if what is wanted breaks a rule of AWS's: for names, lengths, tags, ARNs, the issuer URL. It
// makes no call, and joins the errors, each of which is one sentence. A zero Provider, an empty t.ProviderARN (a dry
// run without an account) and no roles are not checked.
func Check(p Provider, t Trust, roles []Role) error {
	var errs []error
	if p.URL != "" {
		errs = append(errs, p.check()...)
	}
	if len(roles) > 0 && t.Issuer != "" {
		errs = append(errs, t.check()...)
	}
	for _, r := range roles {
		errs = append(errs, r.check(t)...)
	}
	return errors.Join(append(errs, collisions(roles)...)...)
}

func (p Provider) check() []error {
	errs := append(checkAudiences(p.ClientIDs), checkIssuerURL(p.URL, p.Port))
	if n := len(unique(p.Thumbprints)); n > thumbprintCount {
		errs = append(errs, fmt.Errorf("%d thumbprints: AWS allows %d", n, thumbprintCount))
	}
	for _, t := range p.Thumbprints {
		if !regexp.MustCompile(`^[0-9A-Fa-f]{40}$`).MatchString(t) {
			errs = append(errs, fmt.Errorf("thumbprint %q is not 40 hexadecimal digits (the SHA-1 of a certificate, without colons)", t))
		}
	}
	return append(errs, checkTags("the provider", p.Owner, p.Tags)...)
}

func checkAudiences(ids []string) []error {
	var errs []error
	if n := len(unique(ids)); n == 0 || n > clientIDCount {
		errs = append(errs, fmt.Errorf("%d client IDs: a provider has 1 to %d", n, clientIDCount))
	}
	for _, id := range ids {
		if n := utf8.RuneCountInString(id); n == 0 || n > clientIDLimit {
			errs = append(errs, fmt.Errorf("client ID %q has %d characters: AWS allows 1 to %d", id, n, clientIDLimit))
		}
	}
	return errs
}

// checkIssuerURL applies https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html, and
// refuses a trailing slash, which IAM's own tools treat in different ways.
func checkIssuerURL(s string, port bool) error {
	u, err := url.Parse(s)
	if err != nil {
		return fmt.Errorf("issuer URL %q: %w", s, err)
	}
	for _, rule := range []struct {
		broken bool
		why    string
	}{
		{!strings.HasPrefix(s, "https://") || u.Hostname() == "", "begin with https:// and a host"},
		{u.Port() != "" && !port || strings.HasSuffix(u.Host, ":"), "have no port"},
		{u.User != nil, "have no user"},
		{strings.ContainsAny(s, "?#"), "have no query and no fragment"},
		{strings.HasSuffix(s, "/"), "not end in a slash"},
		{u.Host != strings.ToLower(u.Host), "have its host in lower case"},
		{len(s) > urlLimit, fmt.Sprintf("have at most %d characters", urlLimit)},
	} {
		if rule.broken {
			return fmt.Errorf("issuer URL %q: AWS asks that it %s", s, rule.why)
		}
	}
	return nil
}

func (t Trust) check() []error {
	errs := append(checkAudiences(t.Audiences), checkIssuerURL(t.Issuer, t.Port))
	if t.ProviderARN == "" {
		return errs
	}
	if u, err := ProviderURL(t.ProviderARN); err != nil {
		errs = append(errs, err)
	} else if u != t.Issuer {
		errs = append(errs, fmt.Errorf("provider %s is for the issuer %s, not for %s", t.ProviderARN, u, t.Issuer))
	}
	return errs
}

func (r Role) check(t Trust) []error {
	errs := []error{checkRoleName(r.Name), r.checkDescription()}
	if r.Boundary != "" {
		errs = append(errs, checkPolicyARN("permissions boundary", r.Boundary, t))
	}
	for _, arn := range r.ManagedPolicies {
		errs = append(errs, checkPolicyARN("managed policy", arn, t))
	}
	if n := len(unique(r.ManagedPolicies)); n > attachedCount {
		errs = append(errs, fmt.Errorf("%d managed policies: AWS attaches at most %d", n, attachedCount))
	}
	errs = append(errs, checkTags("the role", r.Owner, r.Tags)...)
	errs = append(errs, r.checkSubjects()...)
	errs = append(errs, r.checkTrust(t), r.checkPolicy(t))
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("role %s%s: %w", r.Name, r.reason(), err)
		}
	}
	return errs
}

// reason returns what asks for a role, to append to its name.
func (r Role) reason() string {
	if r.For == "" {
		return ""
	}
	return " (" + r.For + ")"
}

func checkRoleName(name string) error {
	if len(name) > roleNameLimit || !regexp.MustCompile(`^[\w+=,.@-]+$`).MatchString(name) {
		return fmt.Errorf("the name must have 1 to %d letters, digits or characters of +=,.@_-", roleNameLimit)
	}
	return nil
}

func (r Role) checkDescription() error {
	allowed := regexp.MustCompile(`^[\t\n\r\x{20}-\x{7E}\x{A1}-\x{FF}]*$`)
	if utf8.RuneCountInString(r.Description) > descriptionLimit || !allowed.MatchString(r.Description) {
		return fmt.Errorf("the description must have at most %d characters, and none beyond Latin-1", descriptionLimit)
	}
	return nil
}

// checkPolicyARN also compares the ARN with the account and the partition of the roles: IAM's own message for an ARN of
// another partition is that the policy does not exist.
func checkPolicyARN(what, arn string, t Trust) error {
	a, resource, ok := splitARN(arn)
	if !ok || !strings.HasPrefix(resource, "policy/") || len(resource) == len("policy/") || a.ID != "aws" && !isAccountID(a.ID) {
		return fmt.Errorf("%s %q is not the ARN of a managed policy (arn:aws:iam::ACCOUNT:policy/NAME)", what, arn)
	}
	home, _, ok := splitARN(t.ProviderARN)
	if ok && a.Partition != home.Partition {
		return fmt.Errorf("%s %s is of the partition %s, and the account of %s", what, arn, a.Partition, home.Partition)
	}
	if ok && a.ID != "aws" && a.ID != home.ID {
		return fmt.Errorf("%s %s is of account %s, and the role of %s", what, arn, a.ID, home.ID)
	}
	return nil
}

func checkTags(what string, o Owner, tags map[string]string) []error {
	var errs []error
	if o.zero() {
		return append(errs, fmt.Errorf("%s has no owner", what))
	}
	all := o.tags(tags)
	if len(all) > tagCount {
		errs = append(errs, fmt.Errorf("%d tags for %s, our own included: AWS allows %d", len(all), what, tagCount))
	}
	seen := map[string]bool{}
	for _, t := range all {
		errs = append(errs, checkTag(t))
		if k := strings.ToLower(*t.Key); seen[k] { // IAM ignores the case of keys
			errs = append(errs, fmt.Errorf("the tag %s is set twice: keypost sets it itself, or it differs from another only in case", *t.Key))
		} else {
			seen[k] = true
		}
	}
	return errs
}

// checkTag applies https://docs.aws.amazon.com/IAM/latest/APIReference/API_Tag.html.
func checkTag(t types.Tag) error {
	key, value := aws.ToString(t.Key), aws.ToString(t.Value)
	allowed := regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)
	switch {
	case strings.HasPrefix(strings.ToLower(key), "aws:"):
		return fmt.Errorf("the tag %s begins with aws:, which AWS keeps for itself", key)
	case key == "" || utf8.RuneCountInString(key) > tagKeyLimit || utf8.RuneCountInString(value) > tagValueLimit:
		return fmt.Errorf("the tag %q must have a key of 1 to %d characters and a value of at most %d", key, tagKeyLimit, tagValueLimit)
	case !allowed.MatchString(key) || !allowed.MatchString(value):
		return fmt.Errorf("the tag %q=%q may hold letters, digits, spaces and the characters _.:/=+-@", key, value)
	}
	return nil
}

// checkSubjects refuses what cannot be one service account. Our statement compares with StringEquals, so a wildcard
// would trust nobody, and a reader of the policy everybody.
func (r Role) checkSubjects() []error {
	if len(r.Subjects) == 0 {
		return []error{fmt.Errorf("no service account is named that may assume it")}
	}
	var errs []error
	for _, s := range r.Subjects {
		account, ok := strings.CutPrefix(s, "system:serviceaccount:")
		namespace, name, _ := strings.Cut(account, ":")
		if !ok || !dnsname.IsLabel(namespace) || !dnsname.IsSubdomain(name) {
			errs = append(errs, fmt.Errorf("%q is not a service account's subject (system:serviceaccount:NAMESPACE:NAME)", s))
		}
	}
	return errs
}

// checkTrust returns an error if our statement alone is too long. Where the account is not known, it assumes the public
// partition with the longest name.
func (r Role) checkTrust(t Trust) error {
	if t.Issuer == "" {
		return nil
	}
	if t.ProviderARN == "" {
		t.ProviderARN = Account{ID: "000000000000", Partition: "aws-us-gov"}.ProviderARN(t.Issuer)
	}
	if _, err := t.policy().Document(r.Subjects).Fit(t.limit()); err != nil {
		return problem(TrustTooLong, "the trust policy for %d service accounts %w: divide them among several roles",
			len(r.Subjects), err)
	}
	return nil
}

func (r Role) checkPolicy(t Trust) error {
	if r.Policy == nil {
		return nil
	}
	home, _, _ := splitARN(t.ProviderARN)
	return iampolicy.CheckRolePolicy(string(r.Policy), home.Partition)
}

// collisions returns an error for each two roles of one name: ccoctl's names are cut to 64 bytes, and IAM ignores their case.
func collisions(roles []Role) []error {
	first := map[string]Role{}
	var errs []error
	for _, r := range roles {
		k := strings.ToLower(r.Name)
		if other, taken := first[k]; taken {
			errs = append(errs, fmt.Errorf("%s and %s come to the same role name %s: choose a shorter name, or drop one of them",
				asker(other), asker(r), r.Name))
			continue
		}
		first[k] = r
	}
	return errs
}

func asker(r Role) string {
	if r.For == "" {
		return "role " + r.Name
	}
	return r.For
}
