package keystore

import (
	"crypto/elliptic"
	"slices"
	"testing"
)

func TestNotTaken(t *testing.T) {
	const upload = "gcp-upload:projects/1/locations/global/workloadIdentityPools/p/providers/p"
	keys := map[string]VerificationKey{"RS256": mustPublic(t, rsaPublic(2048))}
	for alg, curve := range map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()} {
		keys[alg] = mustPublic(t, ecPrivate(curve, 1).Public())
	}
	for _, tt := range []struct {
		alg     string
		parties []string
		refused []string
	}{
		{"RS256", []string{"aws", "gcp", "entra", "vault", "kube-apiserver", "my-app", upload}, nil},
		{"ES256", []string{"aws", "gcp", upload, "vault", "kube-apiserver", "my-app"}, nil},
		{"ES256", []string{"gcp", "entra"}, []string{"entra"}},
		{"ES384", []string{"aws", "vault", "kube-apiserver", "my-app"}, nil},
		{"ES384", []string{"entra", "gcp"}, []string{"entra", "gcp"}},
		{"ES512", []string{"aws", "gcp"}, []string{"gcp"}},
		{"ES512", []string{upload}, []string{"gcp"}},
		{"ES512", []string{"gcp", upload}, []string{"gcp"}},
		{"ES512", nil, nil},
	} {
		t.Run(tt.alg, func(t *testing.T) {
			k := keys[tt.alg]
			var refused []string
			for _, err := range (Policy{RelyingParties: tt.parties}).NotTaken(k) {
				if err.Key != k.ID() || err.Alg != tt.alg {
					t.Errorf("it names %s, %s", err.Key, err.Alg)
				}
				refused = append(refused, err.Party)
			}
			if !slices.Equal(refused, tt.refused) {
				t.Errorf("%v: refused by %v, want %v", tt.parties, refused, tt.refused)
			}
		})
	}
}
