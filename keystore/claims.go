package keystore

import (
	"errors"
	"fmt"
	"strings"

	kjson "sigs.k8s.io/json"
)

// ClaimedURLs returns the issuer URLs of a document that may be broken otherwise. An error means that they are unknown.
// A manifest of another kind, such as a kustomization.yaml, has none.
//
// An issuer URL of a broken document is not free: once the document is repaired, two key sets would have the URL, and a
// server that starts then serves neither.
func ClaimedURLs(data []byte) ([]IssuerURL, error) {
	asJSON, err := toJSON(data)
	if err != nil {
		return nil, err
	}
	return claimedURLs(asJSON)
}

// claimedURLs is ClaimedURLs of a document that was turned into JSON.
func claimedURLs(asJSON []byte) ([]IssuerURL, error) {
	var d struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       struct {
			Issuers []string `json:"issuers"`
		} `json:"spec"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &d); err != nil {
		return nil, fmt.Errorf("its issuers cannot be read: %s", printableLine(err))
	}
	switch {
	case d.APIVersion != "" && d.Kind != "" && !strings.HasPrefix(d.APIVersion, "keypost.") && !strings.EqualFold(d.Kind, Kind):
		return []IssuerURL{}, nil // both, so that no slip of the pen makes a key set one
	case d.APIVersion != APIVersion || d.Kind != Kind:
		return nil, fmt.Errorf("it is no %s of %s, so that its issuers are unknown", Kind, APIVersion)
	case len(d.Spec.Issuers) == 0:
		return nil, errors.New("it has no spec.issuers")
	}
	urls := []IssuerURL{}
	for _, raw := range d.Spec.Issuers {
		u, err := ParseIssuerURL(raw, true)
		if err != nil {
			return nil, err
		}
		urls = append(urls, u)
	}
	return urls, nil
}
