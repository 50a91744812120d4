package holder

import (
	"context"
	"fmt"
	"strings"

	"github.com/keypost/keypost/internal/strictjson"
	"github.com/keypost/keypost/issuer/upload"
)

// databricks is a federation policy of an account or of a service principal.
//
// Source: https://docs.databricks.com/api/account/accountfederationpolicy/update
func databricks() Kind {
	return Kind{Name: "databricks", Title: "Databricks", Untried: true,
		Needs: "$DATABRICKS_HOST and $DATABRICKS_TOKEN, an OAuth token of an account admin",
		Open: func(_ context.Context, to Target) (upload.Holder, error) {
			a, err := bearer(to, "DATABRICKS_HOST", "", "DATABRICKS_TOKEN")
			if err != nil {
				return nil, err
			}
			host, path, _ := strings.Cut(to.Place, "/")
			if host != a.host() {
				return nil, fmt.Errorf("$DATABRICKS_HOST is %s, and the upload is at %s", a.host(), host)
			}
			at := a.base + "/api/2.0/" + path
			return &remote{api: a, url: at, parse: databricksHeld, body: func(_, jwks []byte) (request, error) {
				return request{"PATCH", at + "?update_mask=oidc_policy.jwks_json", map[string]any{"oidc_policy": map[string]any{"jwks_json": string(jwks)}}}, nil
			}}, nil
		}}
}

func databricksHeld(doc []byte) (held upload.Held, err error) {
	var p struct {
		OIDC struct {
			Issuer string `json:"issuer"`
			JWKS   string `json:"jwks_json"`
			URI    string `json:"jwks_uri"`
		} `json:"oidc_policy"`
	}
	if err := strictjson.Decode(doc, &p); err != nil {
		return held, fmt.Errorf("the answer about the federation policy: %w", err)
	}
	switch {
	case p.OIDC.URI != "":
		return held, fetches("jwks_uri is set")
	case p.OIDC.JWKS == "":
		return held, fetches("jwks_json is empty")
	}
	return upload.Held{JWKS: []byte(p.OIDC.JWKS), Issuer: p.OIDC.Issuer}, nil
}
