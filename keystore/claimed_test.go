package keystore

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// What a broken document claims is known only where its issuers can be read as they stand.
func TestClaimsOfBrokenDocument(t *testing.T) {
	const head = "apiVersion: keypost.dev/v1\nkind: KeySet\nmetadata: {name: prod-a}\n"
	for name, tt := range map[string]struct {
		document string
		known    bool
		want     string
	}{
		"no keys":            {head + "spec: {generation: 1, issuers: [https://a.example.com/x, https://b.example.com]}\n", true, "https://a.example.com/x https://b.example.com"},
		"another name":       {"apiVersion: keypost.dev/v1\nkind: KeySet\nmetadata: {name: x}\nspec: {issuers: [https://a.example.com], keys: []}\n", true, "https://a.example.com"},
		"development":        {head + "spec: {dev: true, issuers: ['https://localhost:8443/a']}\n", true, "https://localhost:8443/a"},
		"another kind":       {"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [prod-a.yaml]\n", true, ""},
		"misspelt kind":      {strings.Replace(head, "KeySet", "Keyset", 1) + "spec: {issuers: [https://a.example.com]}\n", false, ""},
		"misspelt version":   {strings.Replace(head, "/v1", "", 1) + "spec: {issuers: [https://a.example.com]}\n", false, ""},
		"misspelt both":      {"apiVersion: keypost.dev/v1\nkind: KeySets\nspec: {issuers: [https://a.example.com]}\n", false, ""},
		"no YAML":            {head + "spec: {issuers: [https://a.example.com\n", false, ""},
		"cut short":          {head[:40], false, ""},
		"empty":              {"", false, ""},
		"not UTF-8":          {head + "spec: {issuers: [https://a.example.com]}\n# \xff\n", false, ""},
		"no issuers":         {head + "spec: {generation: 1, keys: []}\n", false, ""},
		"emptied issuers":    {head + "spec: {generation: 1, issuers: [], keys: []}\n", false, ""},
		"misspelt issuers":   {head + "spec: {Issuers: [https://a.example.com], keys: []}\n", false, ""},
		"issuers of numbers": {head + "spec: {issuers: [7]}\n", false, ""},
		"damaged URL":        {head + "spec: {issuers: ['https://a.example.com/']}\n", false, ""},
		"issuers twice":      {head + "spec: {issuers: [https://a.example.com], issuers: [https://b.example.com]}\n", false, ""},
		"two documents":      {head + "spec: {issuers: [https://a.example.com]}\n---\n" + head + "spec: {issuers: [https://b.example.com]}\n", false, ""},
		"newer version":      {strings.Replace(head, "v1", "v2", 1) + "spec: {issuers: [https://a.example.com]}\n", false, ""},
		"no manifest":        {"spec: {issuers: [https://a.example.com]}\n", false, ""},
	} {
		_, err := Parse("prod-a", []byte(tt.document))
		broken, ok := errors.AsType[*BrokenError](err)
		if !ok {
			t.Errorf("%s: Parse returns %v, not a BrokenError", name, err)
			continue
		}
		var got []string
		for _, u := range broken.Issuers {
			got = append(got, u.String())
		}
		if known := broken.Issuers != nil; known != tt.known || !slices.Equal(got, strings.Fields(tt.want)) {
			t.Errorf("%s: issuers %q, known %v; want %q, %v", name, got, known, tt.want, tt.known)
		}
	}
}
