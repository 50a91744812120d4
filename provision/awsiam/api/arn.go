package api

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/arn"

	"github.com/keypost/keypost/provision/iampolicy"
)

// Account is the account of the caller's credentials.
type Account struct {
	ID        string // 12 digits
	Partition string // "aws", "aws-us-gov", "aws-cn", "aws-iso", "aws-iso-b", "aws-eusc" …
	Caller    string // the ARN that sts:GetCallerIdentity names
}

func isAccountID(s string) bool {
	return len(s) == 12 && strings.Trim(s, "0123456789") == ""
}

// ProviderARN returns the ARN that the provider for an issuer URL has in this account, whether or not it exists.
func (a Account) ProviderARN(url string) string {
	return fmt.Sprintf("arn:%s:iam::%s:%s%s", a.Partition, a.ID, providerResource, iampolicy.HostPath(url))
}

// RoleARN returns the ARN that the role of this name has in this account, whether or not it exists.
func (a Account) RoleARN(name string) string {
	return fmt.Sprintf("arn:%s:iam::%s:role/%s", a.Partition, a.ID, name)
}

const providerResource = "oidc-provider/"

// SplitARN splits an IAM ARN.
func SplitARN(s string) (a Account, resource string, ok bool) {
	p, err := arn.Parse(s)
	ok = err == nil && p.Partition != "" && p.Service == "iam" && p.Region == ""
	return Account{ID: p.AccountID, Partition: p.Partition}, p.Resource, ok
}

// ProviderURL returns the issuer URL of the provider with an ARN.
func ProviderURL(providerARN string) (string, error) {
	a, resource, ok := SplitARN(providerARN)
	url, isProvider := strings.CutPrefix(resource, providerResource)
	if !ok || !isProvider || url == "" || !isAccountID(a.ID) {
		return "", fmt.Errorf("%q is not the ARN of an IAM OIDC identity provider (arn:aws:iam::ACCOUNT:oidc-provider/HOST)", providerARN)
	}
	return "https://" + url, nil
}

// ParseRoleARN returns the account and the name of the IAM role with an ARN.
func ParseRoleARN(roleARN string) (home Account, name string, err error) {
	home, resource, ok := SplitARN(roleARN)
	if !ok || !isAccountID(home.ID) || !strings.HasPrefix(resource, "role/") || strings.HasSuffix(resource, "/") {
		return home, "", fmt.Errorf("%q is not the ARN of an IAM role (arn:aws:iam::ACCOUNT:role/NAME)", roleARN)
	}
	return home, resource[strings.LastIndex(resource, "/")+1:], nil
}
