package fakeazure

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

const identityType = "Microsoft.ManagedIdentity/userAssignedIdentities"

func (o Options) newIdentity(home, name string, now time.Time) Identity {
	id := home + "/providers/" + identityType + "/" + name
	at := now.String()
	return Identity{ID: id, Name: name, PrincipalID: guid("principal", o.Tenant, id, at), ClientID: guid("client", o.Tenant, id, at), Created: now}
}

func (i Identity) json(o Options) map[string]any {
	return map[string]any{"id": i.ID, "name": i.Name, "type": identityType, "location": i.Location, "tags": i.Tags,
		"properties": map[string]string{"tenantId": o.Tenant, "principalId": i.PrincipalID, "clientId": i.ClientID}}
}

// identity is the identity that a call names.
func (q *request) identity() (Identity, error) {
	if _, err := q.group(); err != nil {
		return Identity{}, err
	}
	i, ok := q.world.identities[strings.ToLower(q.resourceID(identityType, q.vars["identity"]))]
	if !ok {
		return i, noResource(identityType, q.vars["identity"], q.vars["group"])
	}
	return i, nil
}

func getIdentity(q *request) (answer, error) {
	i, err := q.identity()
	if err != nil {
		return answer{}, err
	}
	return ok(i.json(q.Options))
}

// listIdentities are those of a group, or of a subscription.
func listIdentities(q *request) (answer, error) {
	scope := "/subscriptions/" + q.vars["subscription"]
	if q.vars["group"] != "" {
		g, err := q.group()
		if err != nil {
			return answer{}, err
		}
		scope = g.ID
	}
	var items []any
	for _, i := range fakecloud.Sorted(q.world.identities) {
		if within(i.ID, scope) {
			items = append(items, i.json(q.Options))
		}
	}
	return q.page(items)
}

func putIdentity(q *request) (answer, error) {
	name := q.vars["identity"]
	var in tracked
	if err := q.read(&in); err != nil {
		return answer{}, err
	}
	g, err := q.openGroup()
	if err != nil {
		return answer{}, err
	}
	// https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules#microsoftmanagedidentity
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{2,127}$`).MatchString(name) {
		return answer{}, badRequest("BadRequest", "The identity name '%s' is invalid. It must have 3 to 128 letters, digits, dashes and underscores.", name)
	}
	i, err := q.identity()
	exists := err == nil
	if !exists {
		i = q.newIdentity(g.ID, name, q.now)
	}
	i.Location, i.Tags = in.place(), in.Tags
	q.world.identities = fakecloud.With(q.world.identities, strings.ToLower(i.ID), i)
	if exists {
		return ok(i.json(q.Options))
	}
	return created(i.json(q.Options))
}

func patchIdentity(q *request) (answer, error) {
	i, err := q.identity()
	if err == nil {
		i.Tags, err = q.retag(i.Tags)
	}
	if err != nil {
		return answer{}, err
	}
	q.world.identities = fakecloud.With(q.world.identities, strings.ToLower(i.ID), i)
	return ok(i.json(q.Options))
}

// patchIdentityTags changes some of an identity's tags.
func patchIdentityTags(q *request) (answer, error) {
	i, err := q.identity()
	if err == nil {
		i.Tags, err = q.mergeTags(i.Tags)
	}
	if err != nil {
		return answer{}, err
	}
	q.world.identities = fakecloud.With(q.world.identities, strings.ToLower(i.ID), i)
	return tagsOf(i.ID, i.Tags)
}

// deleteIdentity leaves the identity's assignments behind.
func deleteIdentity(q *request) (answer, error) {
	if _, err := q.group(); err != nil {
		return answer{}, err
	}
	i, err := q.identity()
	if err != nil {
		return nothing()
	}
	q.world.identities = fakecloud.Without(q.world.identities, strings.ToLower(i.ID))
	q.world.credentials = outside(q.world.credentials, i.ID)
	return answer{status: http.StatusOK}, nil
}

// parent is the identity of a federated credential. A new one is not known to writes for a while, as ccoctl has found
// (OCPBUGS-59889); a read finds it, without any.
func (q *request) parent(verb string) (Identity, error) {
	i, err := q.identity()
	if _, groupErr := q.group(); groupErr != nil {
		return i, groupErr
	}
	if err != nil || verb == "write" && q.now.Before(i.Created.Add(q.IdentityDelay)) {
		return i, notFound("ParentResourceNotFound", "Failed to perform '%s' on resource(s) of type 'userAssignedIdentities/federatedIdentityCredentials', "+
			"because the parent resource '%s' could not be found.", verb, q.resourceID(identityType, q.vars["identity"]))
	}
	return i, nil
}
