// Package azure makes, moves and deletes an installation in Azure: what package install makes in any cloud, with user-assigned
// managed identities, their federated credentials, custom roles and role assignments. Package arm is the only user of Azure's SDK.
//
// The package promises:
//   - Nothing is changed in another subscription than the one that is meant, nor for a tenant that is not its own.
//   - What [iam.Run] promises.
//   - A run may be stopped anywhere and started again.
//
// Source: github.com/openshift/cloud-credential-operator, pkg/cmd/provisioning/azure.
package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/azure/iam"
	"github.com/keypost/keypost/provision/cloud"
)

// DefaultAudience is what OpenShift's components put into their tokens for Azure.
const DefaultAudience = "openshift"

// Options are what the verbs have in common.
type Options = iam.Options

// run is one run of a verb.
type run struct {
	*iam.Run
	tenant string // empty until identify, and where the caller may not read the subscription
}

func newRun(o Options) *run { return &run{Run: iam.New(o)} }

// identify asks Azure whose the subscription is, reports where everything is going to be, and refuses another tenant than the
// one that is meant.
func (r *run) identify(ctx context.Context) error {
	var err error
	account := arm.Account{Endpoint: r.O.Endpoint, Subscription: r.O.Subscription, Tenant: r.O.Tenant}
	r.Client, err = arm.Open(account, func(w cloud.Wait) { r.Wait("still waiting for Azure: %s", w) })
	if err != nil {
		return err
	}
	if r.tenant, err = r.Tenant(ctx); err != nil {
		return err
	}
	r.Place(fmt.Sprintf("Subscription %s, tenant %s", r.O.Subscription, cmp.Or(r.tenant, "unknown, as the caller may not read the subscription")))
	if r.tenant != "" && r.O.Tenant != "" && !iam.SameName(r.O.Tenant, r.tenant) {
		return arm.Refuse(arm.WrongTenant, "subscription %s belongs to tenant %s, not to %s; nothing was changed", r.O.Subscription, r.tenant, r.O.Tenant)
	}
	return nil
}

// identityNameLimit is Azure's, in characters
// (https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules#microsoftmanagedidentity).
const identityNameLimit = 128

// identityName returns ccoctl's name for the identity behind a CredentialsRequest's Secret, and for its custom role. It is cut,
// so two requests may lead to the same name.
func identityName(installation, namespace, secret string) string {
	name := installation + "-" + namespace + "-" + secret
	return name[:min(len(name), identityNameLimit)]
}

// nameForm is what Azure asks of the names of identities and federated credentials, beside their length
// (https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules#microsoftmanagedidentity).
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]+$`)

// credentialName returns the name of the federated credential of a service account: the account's, as ccoctl has it, where
// Azure takes that. Kubernetes allows dots in it, and one character.
func credentialName(account string) string {
	if nameForm.MatchString(account) && len(account) >= 3 && len(account) <= 120 {
		return account
	}
	return iam.Suffixed(account, account)
}

var (
	regionForm = regexp.MustCompile(`^[a-z0-9]+$`)
	scopeForm  = regexp.MustCompile(`^/subscriptions/[0-9A-Fa-f-]{36}(/[^/?#%\s]+)*$`)
)

// check returns an error if what is wanted breaks a rule of Azure's. It makes no call, and joins the errors, each of which is
// one sentence.
func check(o Options, all []iam.Identity) error {
	errs := []error{checkPlace(o)}
	names := map[string]string{}
	for _, i := range all {
		if err := CheckIdentityName(i.Name); err != nil {
			errs = append(errs, fmt.Errorf("%s: the identity %w", i.Request, err))
		}
		errs = append(errs, checkScopes(o, i)...)
		key := iam.Folded(i.Name)
		if other, taken := names[key]; taken { // Azure would merge them: each would be permitted what the other is
			errs = append(errs, fmt.Errorf("%s and %s lead to the same identity %s (Azure cuts names to %d characters, and takes upper and lower case "+
				"for the same); a shorter name helps", other, i.Request, i.Name, identityNameLimit))
		}
		names[key] = i.Request
	}
	return errors.Join(errs...)
}

// CheckName returns an error if the names of an installation's identities cannot begin with its name: one sentence, where the check of
// everything has one for each identity.
func CheckName(name string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`).MatchString(name) {
		return fmt.Errorf("%q must have letters, digits, hyphens and underscores, and begin with a letter or a digit: the names of the managed identities begin with it", name)
	}
	return nil
}

// CheckIdentityName returns an error for what cannot be the name of an identity.
func CheckIdentityName(name string) error {
	if !nameForm.MatchString(name) || len(name) < 3 || len(name) > 128 {
		return fmt.Errorf("%q: the name of a managed identity has 3 to %d letters, digits, dashes and underscores, and begins with a letter or a digit", name, identityNameLimit)
	}
	return nil
}

// checkPlace checks where everything is going to be.
func checkPlace(o Options) error {
	switch {
	case o.Region != "" && !regionForm.MatchString(o.Region):
		return fmt.Errorf("the region %q is not the name of one, such as westeurope: lower-case letters and digits", o.Region)
	case o.OIDCGroup != "" && iam.SameName(o.OIDCGroup, o.InstallGroup):
		return fmt.Errorf("the resource group %s cannot be both the identities' and the installation's: the installer wants an empty one, and "+
			"destroying the cluster would delete the identities", o.OIDCGroup)
	}
	return nil
}

// checkScopes returns what is wrong with where an identity is to have its roles.
func checkScopes(o Options, i iam.Identity) []error {
	var errs []error
	for _, s := range i.Scopes {
		switch {
		case !isScope(s):
			errs = append(errs, fmt.Errorf("%s: the scope %q is not the ID of a subscription, a resource group or a resource", i.Request, s))
		case !iam.SameName(strings.Split(s, "/")[2], o.Subscription):
			errs = append(errs, fmt.Errorf("%s: the scope %q is not in subscription %s, the only one in which anything may be changed", i.Request, s, o.Subscription))
		}
	}
	return errs
}

// isScope reports whether s has the form of the ID of a subscription, a resource group or a resource, and is a path as it stands.
func isScope(s string) bool {
	parts := strings.Split(s, "/")
	return scopeForm.MatchString(s) && !slices.Contains(parts, ".") && !slices.Contains(parts, "..")
}

// checkKey refuses a key whose tokens Entra does not take.
func checkKey(k keystore.VerificationKey) error {
	if k.ID() == "" || party.Takes("entra", k.Alg()) {
		return nil
	}
	return arm.Refuse(arm.WrongAlgorithm, "the cluster would sign with key %s and %s, and Entra takes only tokens signed with RS256: Azure would refuse every one of them",
		k.ID(), k.Alg())
}
