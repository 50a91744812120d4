package fakegcp

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/keypost/keypost/test/fakecloud"
)

// The limits of OIDC providers (google.iam.v1, WorkloadIdentityPoolProvider and its Oidc).
const (
	poolConstraint   = "constraints/iam.workloadIdentityPoolProviders"
	preconditionType = "type.googleapis.com/google.rpc.PreconditionFailure"
)

func (q *request) providerKey() string { return q.vars["pool"] + "/" + q.vars["provider"] }

func (o Options) providerName(pool, id string) string { return o.poolName(pool) + "/providers/" + id }

func (q *request) provider() (Provider, error) {
	p, ok := q.world.providers[q.providerKey()]
	if !ok {
		return Provider{}, absent()
	}
	return p, nil
}

func getProvider(q *request) (any, error) { return q.provider() }

func listProviders(q *request) (any, error) {
	if _, err := q.pool(); err != nil {
		return nil, err
	}
	var l []any
	for _, p := range fakecloud.Sorted(q.world.providers) {
		if strings.HasPrefix(p.Name, q.providerName(q.vars["pool"], "")) && (p.State != deleted || q.query.Get("showDeleted") == "true") {
			l = append(l, p)
		}
	}
	return q.page("workloadIdentityPoolProviders", l, pageRule{50, 100})
}

func createProvider(q *request) (any, error) {
	id := q.query.Get("workloadIdentityPoolProviderId")
	if err := checkID("workload_identity_pool_provider_id", id); err != nil {
		return nil, err
	}
	var p Provider
	if err := q.read(&p); err != nil {
		return nil, err
	}
	pool, err := q.pool()
	if err != nil {
		return nil, err
	}
	if pool.State == deleted {
		return nil, precondition("The workload identity pool is deleted.")
	}
	p.Name, p.State, p.ExpireTime = q.providerName(q.vars["pool"], id), active, nil
	q.vars["provider"] = id
	if err := q.checkProvider(p); err != nil {
		return nil, err
	}
	if _, found := q.world.providers[q.providerKey()]; found || q.world.pending(p.Name) {
		return nil, taken()
	}
	return q.changeProvider(func(Provider) Provider { return p }), nil
}

// changeProvider begins a change of the provider that a call names.
func (q *request) changeProvider(change func(Provider) Provider) any {
	key := q.providerKey()
	return q.start(q.providerName(q.vars["pool"], q.vars["provider"]), operation{kind: providerType,
		change: func(w world) world {
			w.providers = fakecloud.With(w.providers, key, change(w.providers[key]))
			return w
		},
		subject: func(w world) any { return w.providers[key] }})
}

func patchProvider(q *request) (any, error) {
	old, err := q.provider()
	if err != nil {
		return nil, err
	}
	in := Provider{OIDC: &OIDC{}}
	paths, err := q.mask(&in)
	if err != nil {
		return nil, err
	}
	if old.State == deleted {
		return nil, precondition("The workload identity pool provider is deleted.")
	}
	if in.OIDC == nil {
		in.OIDC = &OIDC{}
	}
	var sent struct {
		OIDC map[string]json.RawMessage `json:"oidc"`
	}
	if len(q.body) > 0 {
		if err := json.Unmarshal(q.body, &sent); err != nil {
			return nil, err
		}
	}
	_, upload := sent.OIDC["jwksJson"]
	change := func(p Provider) (Provider, error) { return p.patched(in, paths, upload) }
	changed, err := change(old)
	if err != nil {
		return nil, err
	}
	if err := q.checkProvider(changed); err != nil {
		return nil, err
	}
	return q.changeProvider(func(p Provider) Provider {
		p, _ = change(p) // the paths have been tried above
		return p
	}), nil
}

// patched takes what the paths name from in. An upload that is not sent stays: it can be removed only by sending it empty.
func (p Provider) patched(in Provider, paths []string, upload bool) (Provider, error) {
	oidc := *p.OIDC
	p.OIDC = &oidc
	for _, path := range paths {
		switch path {
		case "description":
			p.Description = in.Description
		case "disabled":
			p.Disabled = in.Disabled
		case "attributeMapping":
			p.Mapping = in.Mapping
		case "attributeCondition":
			p.Condition = in.Condition
		case "oidc", "oidc.issuerUri", "oidc.discoveryUri", "oidc.allowedAudiences", "oidc.jwksJson":
			whole := path == "oidc"
			if whole || path == "oidc.issuerUri" {
				oidc.Issuer = in.OIDC.Issuer
			}
			if whole || path == "oidc.discoveryUri" {
				oidc.Discovery = in.OIDC.Discovery
			}
			if whole || path == "oidc.allowedAudiences" {
				oidc.Audiences = in.OIDC.Audiences
			}
			if (whole || path == "oidc.jwksJson") && upload {
				oidc.JWKS = in.OIDC.JWKS
			}
		default:
			return p, invalid("Invalid update_mask: %s.", path)
		}
	}
	return p, nil
}

func deleteProvider(q *request) (any, error) {
	p, err := q.provider()
	if err != nil || p.State == deleted {
		return nil, absent()
	}
	expire := q.now.Add(kept)
	return q.changeProvider(func(p Provider) Provider {
		p.State, p.ExpireTime = deleted, &expire
		return p
	}), nil
}

func undeleteProvider(q *request) (any, error) {
	p, err := q.provider()
	if err != nil {
		return nil, err
	}
	if p.State != deleted {
		return nil, precondition("The workload identity pool provider is not deleted.")
	}
	if pool, err := q.pool(); err != nil || pool.State == deleted {
		return nil, precondition("The workload identity pool is deleted.")
	}
	return q.changeProvider(func(p Provider) Provider {
		p.State, p.ExpireTime = active, nil
		return p
	}), nil
}

// checkProvider checks what IAM checks before it keeps a provider.
func (q *request) checkProvider(p Provider) error {
	if p.OIDC == nil {
		return invalid("One of aws, oidc, saml or x509 must be set; fakegcp knows oidc.")
	}
	if p.Condition != "" && !isCondition(p.Condition) {
		return invalid("Invalid attribute condition: fakegcp does not know %q.", p.Condition)
	}
	return q.checkIssuerPolicy(p.OIDC.Issuer)
}

// checkIssuerPolicy is the organisation policy of the issuers that are let in
// (https://cloud.google.com/iam/docs/troubleshooting-workload-identity-federation).
func (q *request) checkIssuerPolicy(issuer string) error {
	if q.AllowedIssuers == nil || slices.Contains(q.AllowedIssuers, issuer) {
		return nil
	}
	f := fail(http.StatusBadRequest, "FAILED_PRECONDITION", "Precondition check failed.")
	f.details = []any{map[string]any{"@type": preconditionType, "violations": []map[string]string{{
		"type":        poolConstraint,
		"subject":     "orgpolicy:projects/" + q.Project + "/locations/global/workloadIdentityPools/" + q.vars["pool"],
		"description": "Org Policy violated for value: '" + issuer + "'.",
	}}}}
	return f
}
