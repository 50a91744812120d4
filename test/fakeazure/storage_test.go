package fakeazure

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// What ccoctl does with an account, a container and blobs.
func TestAPublicContainerServesWhatWasPutIntoIt(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	account := group + "/providers/Microsoft.Storage/storageAccounts/prodaoidc"
	container := account + "/blobServices/default/containers/prod-a"
	s.must(t, "PUT", group, here)
	const public = `{"location":"centralus","kind":"StorageV2","sku":{"name":"Standard_LRS"},"properties":{"allowBlobPublicAccess":true},"tags":{"a":"b"}}`
	r := s.must(t, "PUT", account, public)
	path, _, _ := strings.Cut(strings.TrimPrefix(r.header.Get("Location"), "https://management.azure.com"), "?")
	if got := s.must(t, "GET", path, ""); r.status != 202 || got.get("name") != "prodaoidc" || got.get("properties.provisioningState") != "Succeeded" {
		t.Error(r.status, got.text)
	}
	if n := s.must(t, "GET", group+"/providers/Microsoft.Storage/storageAccounts", "").names(); fmt.Sprint(n) != "[prodaoidc]" {
		t.Error(n)
	}
	if got := s.must(t, "PATCH", account, `{"tags":{"c":"d"}}`); got.get("tags.c") != "d" || got.get("properties.allowBlobPublicAccess") != "true" {
		t.Error(got.text)
	}
	s.refused(t, "PUT", account+"-", public, "400 AccountNameInvalid")
	s.must(t, "PUT", subscription+"/resourceGroups/other", here)
	s.refused(t, "PUT", subscription+"/resourceGroups/other/providers/Microsoft.Storage/storageAccounts/prodaoidc", public, "409 StorageAccountAlreadyTaken")
	if got := s.must(t, "POST", account+"/listKeys", ""); !strings.Contains(got.text, `"keyName":"key1"`) {
		t.Error(got.text)
	}
	s.refused(t, "GET", container, "", "404 ContainerNotFound")
	s.must(t, "PUT", container, `{"properties":{"publicAccess":"Container"}}`)
	if got := s.must(t, "GET", container, ""); got.get("properties.publicAccess") != "Container" {
		t.Error(got.text)
	}

	blob := func(method, path, body, authorization string) reply {
		h := http.Header{"Host": {"prodaoidc.blob.core.windows.net"}, "X-Ms-Blob-Type": {"BlockBlob"}}
		if authorization != "" {
			h.Set("Authorization", authorization)
		}
		return s.send1(t, method, path, body, h)
	}
	for _, c := range []struct {
		method, path, authorization string
		status                      int
	}{
		{"PUT", "/prod-a/openid/v1/jwks", "", 401}, {"PUT", "/none/x", "SharedKey x", 404}, {"GET", "/prod-a/openid/v1/jwks", "", 404},
		{"PUT", "/prod-a/openid/v1/jwks", "SharedKey x", 201}, {"GET", "/prod-a/openid/v1/jwks", "", 200}, {"GET", "/none/x", "", 404},
	} {
		got := blob(c.method, c.path, "{}", c.authorization)
		if got.status != c.status || got.status == 200 && got.text != "{}" {
			t.Error(c, got)
		}
	}
	if b := s.State().Blobs; b["prodaoidc/prod-a/openid/v1/jwks"] != "{}" {
		t.Error(b)
	}
	if x, y := s.must(t, "DELETE", account, ""), s.must(t, "DELETE", account, ""); x.status != 200 || y.status != 204 || len(s.State().Blobs) != 0 {
		t.Error(x.status, y.status)
	}
}
