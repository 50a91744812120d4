package awsiam

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/keypost/keypost/provision/awsiam/api"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

const providerThing = "IAM OIDC identity provider"

// Provider is an IAM OIDC identity provider as it should be.
type Provider struct {
	URL         string   // the issuer URL; its ARN is Account.ProviderARN(URL)
	ClientIDs   []string // audiences that tokens may carry
	Thumbprints []string // SHA-1, 40 hex digits; none leaves IAM's own, and a public CA needs none
	Owner       Owner
	Tags        map[string]string // beside the owner's
	Adopt       bool              // take over a provider without the owner's tag
	Prune       bool              // remove client IDs and thumbprints that are not asked for
	Usual       bool              // these ClientIDs are defaults: others stay, as roles that ask for them keep them
}

// ProviderState is a provider as IAM shows it.
type ProviderState struct {
	ClientIDs, Thumbprints []string

	tags map[string]string
}

// Provider returns nil for a provider that is not there.
func (c *Client) Provider(ctx context.Context, arn string) (*ProviderState, error) {
	out, err := api.Ask(ctx, c.Client, c.IAM.GetOpenIDConnectProvider, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(arn)})
	if api.IsMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &ProviderState{ClientIDs: slices.Sorted(slices.Values(out.ClientIDList)), Thumbprints: out.ThumbprintList, tags: tagMap(out.Tags)}, nil
}

// PlanProvider plans p in account a. The provider is found by its URL. The first note or the action names the ARN.
func (c *Client) PlanProvider(ctx context.Context, a Account, p Provider) (plan.Plan, error) {
	arn := a.ProviderARN(p.URL)
	have, err := c.Provider(ctx, arn)
	if err != nil {
		return plan.Plan{}, err
	}
	return cloud.Thing[*ProviderState]{
		Kind: providerThing, Name: arn, Missing: have == nil, Found: "Existing Identity Provider found with ARN: " + arn,
		Read:   func(ctx context.Context) (*ProviderState, error) { return c.Provider(ctx, arn) },
		Decide: func(have *ProviderState) (cloud.Decision, error) { return c.decideProvider(p, arn, have) },
	}.Plan(c.API, have)
}

// decideProvider returns the steps from have to p. The error reports another owner.
func (c *Client) decideProvider(p Provider, arn string, have *ProviderState) (d cloud.Decision, err error) {
	if have == nil {
		return cloud.Decision{Steps: []cloud.Step{c.createProvider(p, arn)}}, nil
	}
	if err := p.Owner.mayTake(providerThing+" "+arn, have.tags, p.Adopt); err != nil {
		return d, err
	}
	id := aws.String(arn)
	if missing, diff := tagDifference(have.tags, p.Owner.tags(p.Tags)); len(missing) > 0 {
		d.Steps = append(d.Steps, c.tagProviderStep(arn, missing, diff))
	}
	for _, client := range minus(p.ClientIDs, have.ClientIDs) {
		d.Steps = append(d.Steps, api.NewStep(c.Client, c.IAM.AddClientIDToOpenIDConnectProvider, &iam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: id, ClientID: aws.String(client)},
			fmt.Sprintf("Client ID %s added to Identity Provider with ARN %s", client, arn), "+ client ID "+client))
	}
	for _, client := range minus(have.ClientIDs, p.ClientIDs) {
		if !p.Prune || p.Usual {
			d.Extra = append(d.Extra, fmt.Sprintf("%s takes tokens for the audience %s too; --prune takes it away, with --client-id for those that stay", arn, client))
			continue
		}
		d.Steps = append(d.Steps, api.NewStep(c.Client, c.IAM.RemoveClientIDFromOpenIDConnectProvider, &iam.RemoveClientIDFromOpenIDConnectProviderInput{OpenIDConnectProviderArn: id, ClientID: aws.String(client)},
			fmt.Sprintf("Client ID %s removed from Identity Provider with ARN %s", client, arn), "- client ID "+client))
	}
	d.Steps = append(d.Steps, c.thumbprintStep(p, arn, have)...)
	return d, nil
}

func (c *Client) tagProviderStep(arn string, tags []types.Tag, diff []string) cloud.Step {
	in := &iam.TagOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(arn), Tags: tags}
	return api.NewStep(c.Client, c.IAM.TagOpenIDConnectProvider, in, fmt.Sprintf("Identity Provider with ARN %s tagged %s", arn, tagLine(tags)), diff...)
}

// tagLine returns tags for the reader: KEY=VALUE, …
func tagLine(tags []types.Tag) string {
	var out []string
	for _, t := range tags {
		out = append(out, aws.ToString(t.Key)+"="+aws.ToString(t.Value))
	}
	return strings.Join(out, ", ")
}

func (c *Client) createProvider(p Provider, arn string) cloud.Step {
	in := &iam.CreateOpenIDConnectProviderInput{
		Url: aws.String(p.URL), ClientIDList: unique(p.ClientIDs), ThumbprintList: unique(p.Thumbprints), Tags: p.Owner.tags(p.Tags),
	}
	diff := []string{"+ URL " + p.URL}
	for _, id := range in.ClientIDList {
		diff = append(diff, "+ client ID "+id)
	}
	for _, t := range in.ThumbprintList {
		diff = append(diff, "+ thumbprint "+t)
	}
	_, tags := tagDifference(nil, in.Tags)
	s := api.NewStep(c.Client, c.IAM.CreateOpenIDConnectProvider, in, "Identity Provider created with ARN: "+arn, append(diff, tags...)...)
	s.Read = true // by anyone who makes roles next
	return s
}

// thumbprintStep adds the wanted ones to IAM's list; with Prune they replace it. Without any, IAM keeps its own, and ignores it
// for certificates of a public CA.
func (c *Client) thumbprintStep(p Provider, arn string, have *ProviderState) []cloud.Step {
	list, current := p.Thumbprints, lower(have.Thumbprints)
	if !p.Prune && len(list) > 0 {
		list = slices.Concat(list, minus(current, lower(list)))
	}
	want := lower(list)
	gone, added := minus(current, want), minus(want, current)
	if len(want) == 0 || len(gone)+len(added) == 0 {
		return nil
	}
	in := &iam.UpdateOpenIDConnectProviderThumbprintInput{OpenIDConnectProviderArn: aws.String(arn), ThumbprintList: unique(list)}
	s := api.NewStep(c.Client, c.IAM.UpdateOpenIDConnectProviderThumbprint, in, "Thumbprints of Identity Provider with ARN "+arn+" updated")
	for _, t := range gone {
		s.Diff = append(s.Diff, "- thumbprint "+t)
	}
	for _, t := range added {
		s.Diff = append(s.Diff, "+ thumbprint "+t)
	}
	return []cloud.Step{s}
}

// providers returns the ARNs of all.
func (c *Client) providers(ctx context.Context) (arns []string, err error) {
	list, err := api.Ask(ctx, c.Client, c.IAM.ListOpenIDConnectProviders, &iam.ListOpenIDConnectProvidersInput{})
	if err != nil {
		return nil, err
	}
	for _, p := range list.OpenIDConnectProviderList {
		arns = append(arns, aws.ToString(p.Arn))
	}
	return arns, nil
}

// ProviderURLs returns the issuer URLs of the account's providers.
func (c *Client) ProviderURLs(ctx context.Context) (urls []string, err error) {
	arns, err := c.providers(ctx)
	for _, arn := range arns {
		if url, err := api.ProviderURL(arn); err == nil {
			urls = append(urls, url)
		}
	}
	return urls, err
}

// ownedProviders returns the ARNs of the owner's providers.
func (c *Client) ownedProviders(ctx context.Context, o Owner) (owned, error) {
	arns, err := c.providers(ctx)
	if err != nil {
		return owned{}, err
	}
	return filterOwned(arns, o, func(arn string) (map[string]string, error) {
		have, err := c.Provider(ctx, arn)
		if have == nil {
			return map[string]string{}, err
		}
		return have.tags, err
	})
}

// owned are things by their tags; what is somebody else's is not among them.
type owned struct {
	ours   []string
	shared []string // with the owner's tag, and another owner's too
	unread []string // the caller may not read their tags
}

// filterOwned reads the tags of things.
func filterOwned(things []string, o Owner, tagsOf func(string) (map[string]string, error)) (owned, error) {
	tags, err := each(things, func(thing string) (map[string]string, error) {
		tags, err := tagsOf(thing)
		if api.IsDenied(err) {
			return nil, nil
		}
		return tags, err
	})
	var out owned
	for i, t := range tags {
		switch {
		case t == nil:
			out.unread = append(out.unread, things[i])
		case o.Owns(t):
			out.ours = append(out.ours, things[i])
		case o.ownerTag().On(t):
			out.shared = append(out.shared, things[i])
		}
	}
	return out, err
}

// tagDifference lists the tags that are missing or have another value; tags that nobody asked for stay.
func tagDifference(have map[string]string, want []types.Tag) (missing []types.Tag, diff []string) {
	for _, t := range want {
		k, v := aws.ToString(t.Key), aws.ToString(t.Value)
		old, ok := have[k]
		if ok && old == v {
			continue
		}
		if ok {
			diff = append(diff, fmt.Sprintf("- tag %s=%s", k, old))
		}
		diff = append(diff, fmt.Sprintf("+ tag %s=%s", k, v))
		missing = append(missing, t)
	}
	return missing, diff
}

// minus returns what a has and b does not have, once each, in a's order.
func minus(a, b []string) []string {
	return slices.DeleteFunc(unique(a), func(s string) bool { return slices.Contains(b, s) })
}

// unique keeps the first of equal ones.
func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func lower(list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, strings.ToLower(s))
	}
	return slices.Sorted(slices.Values(out))
}
