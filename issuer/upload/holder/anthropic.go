package holder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/keypost/keypost/internal/strictjson"
	"github.com/keypost/keypost/issuer/upload"
)

// anthropic is a federation issuer of an organization. It takes an OAuth access token with the scope org:admin, and no API key.
//
// Source: https://platform.claude.com/docs/en/api/http/organization/federation/issuers/update
func anthropic() Kind {
	return Kind{Name: "anthropic", Title: "Anthropic", Untried: true,
		Needs: "$ANTHROPIC_AUTH_TOKEN, an OAuth token with the scope org:admin",
		Open: func(_ context.Context, to Target) (upload.Holder, error) {
			a, err := bearer(to, "ANTHROPIC_BASE_URL", "https://api.anthropic.com", "ANTHROPIC_AUTH_TOKEN")
			if err != nil {
				return nil, err
			}
			a.header.Set("anthropic-version", "2023-06-01")
			at := a.base + "/v1/organizations/federation_issuers/" + to.Place
			return &remote{api: a, url: at, parse: anthropicHeld, body: func(_, jwks []byte) (request, error) {
				var set struct {
					Keys json.RawMessage `json:"keys"`
				}
				err := json.Unmarshal(jwks, &set)
				return request{"POST", at, map[string]any{"jwks": map[string]any{"type": "inline", "keys": set.Keys}}}, err
			}}, nil
		}}
}

func anthropicHeld(doc []byte) (held upload.Held, err error) {
	var p struct {
		Issuer   string  `json:"issuer_url"`
		Archived *string `json:"archived_at"`
		JWKS     struct {
			Type string          `json:"type"`
			Keys json.RawMessage `json:"keys"`
		} `json:"jwks"`
	}
	if err := strictjson.Decode(doc, &p); err != nil {
		return held, fmt.Errorf("the answer about the federation issuer: %w", err)
	}
	if p.JWKS.Type != "inline" {
		return held, fetches("jwks.type is " + p.JWKS.Type)
	}
	held = upload.Held{JWKS: fmt.Appendf(nil, `{"keys":%s}`, p.JWKS.Keys), Issuer: p.Issuer}
	if p.Archived != nil {
		held.Refused = errors.New("the federation issuer is archived, which ends it for good; create another one")
	}
	return held, nil
}
