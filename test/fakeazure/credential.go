package fakeazure

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/keypost/keypost/test/fakecloud"
)

// credentialLimit is how many federated credentials an identity may have
// (https://learn.microsoft.com/entra/workload-id/workload-identity-federation-considerations).
const credentialLimit = 20

func (c Credential) json() map[string]any {
	return map[string]any{"id": c.ID, "name": c.Name, "type": identityType + "/federatedIdentityCredentials",
		"properties": map[string]any{"issuer": c.Issuer, "subject": c.Subject, "audiences": c.Audiences}}
}

// of are the federated credentials of an identity.
func (w world) of(identity string) []Credential {
	var l []Credential
	for _, c := range fakecloud.Sorted(w.credentials) {
		if strings.EqualFold(c.Identity, identity) {
			l = append(l, c)
		}
	}
	return l
}

func (q *request) credential() (Credential, error) {
	if _, err := q.parent("read"); err != nil {
		return Credential{}, err
	}
	c, ok := q.world.credentials[strings.ToLower(q.resourceID(identityType, q.vars["identity"], q.vars["credential"]))]
	if !ok {
		return c, notFound("NotFound", "The Resource '%s/%s/federatedIdentityCredentials/%s' under resource group '%s' was not found.", identityType,
			q.vars["identity"], q.vars["credential"], q.vars["group"])
	}
	return c, nil
}

func getCredential(q *request) (answer, error) {
	c, err := q.credential()
	if err != nil {
		return answer{}, err
	}
	return ok(c.json())
}

func listCredentials(q *request) (answer, error) {
	i, err := q.parent("read")
	if err != nil {
		return answer{}, err
	}
	var items []any
	for _, c := range q.world.of(i.ID) {
		items = append(items, c.json())
	}
	return q.page(items)
}

// putCredential makes a federated credential, or replaces one without a word.
func putCredential(q *request) (answer, error) {
	var in struct {
		Properties struct {
			Issuer, Subject string
			Audiences       []string
		}
	}
	if err := q.read(&in); err != nil {
		return answer{}, err
	}
	i, err := q.parent("write")
	if err != nil {
		return answer{}, err
	}
	name := q.vars["credential"]
	c := Credential{ID: i.ID + "/federatedIdentityCredentials/" + name, Name: name, Identity: i.ID, Issuer: in.Properties.Issuer,
		Subject: in.Properties.Subject, Audiences: in.Properties.Audiences}
	if err := c.check(); err != nil {
		return answer{}, err
	}
	old, err := q.credential()
	exists := err == nil
	if exists {
		c.ID, c.Name = old.ID, old.Name
	}
	others := 0
	for _, o := range q.world.of(i.ID) {
		if strings.EqualFold(o.ID, c.ID) {
			continue
		}
		others++
		if o.Issuer == c.Issuer && o.Subject == c.Subject {
			return answer{}, conflict("Conflict", "Issuer and subject combination already exists for this Managed Identity.")
		}
	}
	if others >= credentialLimit {
		return answer{}, badRequest("BadRequest", "The maximum number of federated identity credentials (%d) for this Managed Identity has been reached.",
			credentialLimit)
	}
	q.world.credentials = fakecloud.With(q.world.credentials, strings.ToLower(c.ID), c)
	if exists {
		return ok(c.json())
	}
	return created(c.json())
}

// check keeps the rules of one federated credential by itself.
func (c Credential) check() error {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{2,119}$`).MatchString(c.Name) {
		return badRequest("BadRequest", "The federated identity credential name '%s' is invalid. It must have 3 to 120 letters, digits, dashes and "+
			"underscores, and begin with a letter or a digit.", c.Name)
	}
	return nil
}

func deleteCredential(q *request) (answer, error) {
	if _, err := q.parent("delete"); err != nil {
		return answer{}, err
	}
	c, err := q.credential()
	if err != nil {
		return nothing()
	}
	q.world.credentials = fakecloud.Without(q.world.credentials, strings.ToLower(c.ID))
	return answer{status: http.StatusOK}, nil
}
