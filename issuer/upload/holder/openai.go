package holder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/keypost/keypost/internal/strictjson"
	"github.com/keypost/keypost/issuer/upload"
)

// openai is a workload identity provider of an organization, whose update keeps members that are not named.
//
// Source: https://developers.openai.com/api/reference/resources/admin/subresources/organization/subresources/workload_identity_providers
func openai() Kind {
	return Kind{Name: "openai", Title: "OpenAI", Untried: true, Needs: "$OPENAI_ADMIN_KEY",
		Open: func(_ context.Context, to Target) (upload.Holder, error) {
			a, err := bearer(to, "OPENAI_BASE_URL", "https://api.openai.com/v1", "OPENAI_ADMIN_KEY")
			if err != nil {
				return nil, err
			}
			at := a.base + "/organization/workload_identity_providers/" + to.Place
			return &remote{api: a, url: at, parse: openaiHeld, body: func(_, jwks []byte) (request, error) {
				return request{"POST", at, map[string]any{"verification": map[string]any{"type": "uploaded_jwks", "jwks": json.RawMessage(jwks)}}}, nil
			}}, nil
		}}
}

func openaiHeld(doc []byte) (held upload.Held, err error) {
	var p struct {
		Issuer       string `json:"issuer"`
		Enabled      *bool  `json:"enabled"`
		Verification struct {
			Type string          `json:"type"`
			JWKS json.RawMessage `json:"jwks"`
		} `json:"verification"`
	}
	if err := strictjson.Decode(doc, &p); err != nil {
		return held, fmt.Errorf("the answer about the provider: %w", err)
	}
	if p.Verification.Type != "uploaded_jwks" {
		return held, fetches("verification.type is " + p.Verification.Type)
	}
	held = upload.Held{JWKS: p.Verification.JWKS, Issuer: p.Issuer}
	if p.Enabled != nil && !*p.Enabled {
		held.Refused = errors.New("the provider is disabled; enable it")
	}
	return held, nil
}
