package arm

import (
	"errors"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// What a refused change comes to.
const (
	final = iota
	again // it passes by itself: what is named was just made, or is still being changed, perhaps by an earlier request of ours
)

// refusals say what a refusal means. The first that fits counts. Any other refusal is final.
var refusals = []struct {
	code   string         // whatever its letter case
	text   *regexp.Regexp // nil for any
	means  int
	source string
}{
	{"PrincipalNotFound", nil, again, "https://learn.microsoft.com/azure/role-based-access-control/troubleshooting"},
	{"RoleDefinitionDoesNotExist", nil, again, "what ccoctl repeats: its pkg/cmd/provisioning/azure/create_managed_identities.go"},
	{"ParentResourceNotFound", nil, again, "https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-parent-resource"},
	{"RoleDefinitionHasAssignments", nil, again, "https://learn.microsoft.com/azure/role-based-access-control/troubleshooting"},
	{"ResourceGroupBeingDeleted", nil, again, "https://learn.microsoft.com/azure/azure-resource-manager/management/delete-resource-group"},
	{"ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity", nil, again, "github.com/hashicorp/terraform-provider-azurerm/issues/19968"},
	{"AnotherOperationInProgress", nil, again, "https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors"},

	{"Conflict", regexp.MustCompile(`^Issuer and subject combination already exists`), final, "github.com/Azure/bicep-types-az/issues/2054"},
	{"Conflict", regexp.MustCompile(`(?i)\b(?:concurrent(?:ly)?|in progress|being (?:deleted|updated|modified))\b`), again,
		"https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations"},
	{"RequestDisallowedByPolicy", nil, final, "https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-policy-requestdisallowedbypolicy"},
	{"ScopeLocked", nil, final, "github.com/hashicorp/terraform-provider-azurerm/issues/17478"},
}

// passes reports whether a change that was refused may be taken later.
func passes(err error) bool {
	r, is := errors.AsType[*azcore.ResponseError](err)
	if !is {
		return false
	}
	message := ""
	if e, is := errors.AsType[*callError](err); is {
		message = e.said.Message
	}
	for _, known := range refusals {
		if strings.EqualFold(known.code, r.ErrorCode) && (known.text == nil || known.text.MatchString(message)) {
			return known.means == again
		}
	}
	return false
}
