package fakeaws

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

// What a provider may hold (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html).
const (
	clientIDLimit   = 100
	thumbprintLimit = 5
)

type providerARN struct {
	OpenIDConnectProviderArn string
	Tags                     members[tag]
}

// createProvider asks the issuer for its certificate first, when no thumbprint is given: then making a provider is a
// test of the issuer being up and of its discovery document, as it is at AWS.
func createProvider(ctx context.Context, s *Server, in params, now time.Time) (any, error) {
	p, err := newProvider(s.options, in, now)
	if err != nil {
		return nil, err
	}
	if len(p.Thumbprints) == 0 {
		thumbprint, err := s.keys.thumbprint(ctx, p.URL)
		if err != nil {
			return nil, fail(http.StatusBadRequest, "OpenIdIdpCommunicationError",
				"Please check .well-known/openid-configuration of provider: %s is valid.", p.URL)
		}
		p.Thumbprints = []string{thumbprint}
	}
	add := write("", func(q *request) (any, error) {
		if _, taken := q.world.providers[p.ARN]; taken {
			return nil, conflict("EntityAlreadyExists", "Provider with url %s already exists.", p.URL)
		}
		q.world.setProvider(p)
		return providerARN{p.ARN, tagList(p.Tags)}, nil
	})
	return s.transact(add, &request{Options: s.options, in: in, now: now})
}

func newProvider(o Options, in params, now time.Time) (Provider, error) {
	u := in.text["Url"]
	if err := checkURL(u, o.AllowPorts); err != nil {
		return Provider{}, err
	}
	clients, err := addClients(nil, in.lists["ClientIDList"])
	if err != nil {
		return Provider{}, err
	}
	thumbprints := in.lists["ThumbprintList"]
	if err := checkThumbprints(thumbprints); err != nil {
		return Provider{}, err
	}
	given, err := addTags(nil, in.tags["Tags"], "TagsPerOpenIDConnectProvider")
	if err != nil {
		return Provider{}, err
	}
	return Provider{ARN: o.providerARN(u), URL: u, ClientIDs: clients, Thumbprints: thumbprints, Tags: given, Created: now}, nil
}

func (o Options) providerARN(u string) string {
	return o.arn("iam", "oidc-provider/"+strings.TrimPrefix(u, "https://"))
}

// checkURL applies https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html.
func checkURL(s string, ports bool) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || !strings.HasPrefix(s, "https://") || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.ForceQuery || strings.Contains(s, "#") || u.Port() != "" && !ports {
		return validation("Invalid Open ID Connect Provider URL")
	}
	return nil
}

func checkThumbprints(list []string) error {
	if len(list) > thumbprintLimit {
		return limitExceeded("ThumbprintsPerOpenIdConnectProvider", thumbprintLimit)
	}
	for _, t := range list {
		if !regexp.MustCompile(`^[0-9A-Fa-f]{40}$`).MatchString(t) {
			return invalidInput("Invalid thumbprint: %s", t)
		}
	}
	return nil
}

// addClients joins two lists of client IDs. One that is there already is not an error.
func addClients(old, more []string) ([]string, error) {
	result := slices.Clone(old)
	for _, c := range more {
		if !slices.Contains(result, c) {
			result = append(result, c)
		}
	}
	if len(result) > clientIDLimit {
		return nil, limitExceeded("ClientIdsPerOpenIdConnectProvider", clientIDLimit)
	}
	return result, nil
}

// changeProvider is what all changes of an existing provider have in common.
func changeProvider(q *request, change func(*Provider) error) (any, error) {
	p, err := q.provider()
	if err != nil {
		return nil, err
	}
	if err := change(&p); err != nil {
		return nil, err
	}
	q.world.setProvider(p)
	return nil, nil
}

func (q *request) provider() (Provider, error) {
	arn := q.in.text["OpenIDConnectProviderArn"]
	if err := checkProviderARN(arn); err != nil {
		return Provider{}, err
	}
	return q.world.provider(arn)
}

func checkProviderARN(arn string) error {
	if !regexp.MustCompile(`^arn:aws[a-z-]*:iam::\d{12}:oidc-provider/.+$`).MatchString(arn) {
		return validation("Invalid ARN: Could not be parsed!")
	}
	return nil
}

func getProvider(q *request) (any, error) {
	p, err := q.provider()
	if err != nil {
		return nil, err
	}
	return struct {
		Url            string
		ClientIDList   members[string]
		ThumbprintList members[string]
		CreateDate     string
		Tags           members[tag]
	}{strings.TrimPrefix(p.URL, "https://"), members[string]{p.ClientIDs}, members[string]{p.Thumbprints},
		timestamp(p.Created), tagList(p.Tags)}, nil
}

func listProviders(q *request) (any, error) {
	type entry struct{ Arn string }
	var out struct{ OpenIDConnectProviderList members[entry] }
	list := &out.OpenIDConnectProviderList.Items
	for _, arn := range slices.Sorted(maps.Keys(q.world.providers)) {
		*list = append(*list, entry{arn})
	}
	return out, nil
}

// deleteProvider is not an error for a provider that is not there
// (https://docs.aws.amazon.com/IAM/latest/APIReference/API_DeleteOpenIDConnectProvider.html).
func deleteProvider(_ context.Context, s *Server, in params, now time.Time) (any, error) {
	arn := in.text["OpenIDConnectProviderArn"]
	if err := checkProviderARN(arn); err != nil {
		return nil, err
	}
	s.keys.forget(arn)
	drop := write("", func(q *request) (any, error) {
		q.world.providers = fakecloud.Without(q.world.providers, arn)
		return nil, nil
	})
	return s.transact(drop, &request{Options: s.options, in: in, now: now})
}

func addClientID(q *request) (any, error) {
	return changeProvider(q, func(p *Provider) (err error) {
		p.ClientIDs, err = addClients(p.ClientIDs, []string{q.in.text["ClientID"]})
		return err
	})
}

func removeClientID(q *request) (any, error) {
	return changeProvider(q, func(p *Provider) error {
		p.ClientIDs = slices.DeleteFunc(p.ClientIDs, func(c string) bool { return c == q.in.text["ClientID"] })
		return nil
	})
}

func updateThumbprint(q *request) (any, error) {
	return changeProvider(q, func(p *Provider) error {
		p.Thumbprints = q.in.lists["ThumbprintList"]
		if len(p.Thumbprints) == 0 {
			return invalidInput("Thumbprint list must contain at least one thumbprint.")
		}
		return checkThumbprints(p.Thumbprints)
	})
}

func tagProvider(q *request) (any, error) {
	return changeProvider(q, func(p *Provider) (err error) {
		p.Tags, err = addTags(p.Tags, q.in.tags["Tags"], "TagsPerOpenIDConnectProvider")
		return err
	})
}

func untagProvider(q *request) (any, error) {
	return changeProvider(q, func(p *Provider) error {
		p.Tags = dropTags(p.Tags, q.in.lists["TagKeys"])
		return nil
	})
}
