package fakeaws

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/keypost/keypost/test/fakecloud/cluster"
)

// post sends a form as it is, signed for a service unless change says otherwise.
func post(t testing.TB, s *Server, service, form string, change func(*http.Request)) (int, string) {
	t.Helper()
	r := must(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader(form)))(t)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	sum := sha256.Sum256([]byte(form))
	keys := aws.Credentials{AccessKeyID: AccessKeyID, SecretAccessKey: secretAccessKey}
	if err := v4.NewSigner().SignHTTP(t.Context(), keys, r, hex.EncodeToString(sum[:]), service, "us-east-1", time.Now()); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	response := must(http.DefaultClient.Do(r))(t)
	defer response.Body.Close()
	return response.StatusCode, string(must(io.ReadAll(response.Body))(t))
}

func TestOnlyASignatureThatHoldsIsBelieved(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	const form = "Action=ListRoles&Version=2010-05-08"
	if status, body := post(t, s, "iam", form, nil); status != http.StatusOK {
		t.Fatal(body)
	}
	edit := func(old, new string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), old, new, 1))
		}
	}
	for name, c := range map[string]struct {
		service string
		change  func(*http.Request)
		code    string
	}{
		"none":                {"iam", func(r *http.Request) { r.Header.Del("Authorization") }, "MissingAuthenticationToken"},
		"another scheme":      {"iam", func(r *http.Request) { r.SetBasicAuth("a", "b") }, "IncompleteSignature"},
		"another key":         {"iam", edit(AccessKeyID, "AKIAOTHER"), "InvalidClientTokenId"},
		"a token nobody gave": {"iam", func(r *http.Request) { r.Header.Set("X-Amz-Security-Token", "x") }, "InvalidClientTokenId"},
		"another service":     {"sts", nil, "SignatureDoesNotMatch"},
		"another signature":   {"iam", edit("Signature=", "Signature=00"), "IncompleteSignature"},
		"another region":      {"iam", edit("us-east-1", "us-east-2"), "SignatureDoesNotMatch"},
		"another date":        {"iam", func(r *http.Request) { r.Header.Set("X-Amz-Date", "20260101T000000Z") }, "SignatureDoesNotMatch"},
		"no date":             {"iam", func(r *http.Request) { r.Header.Del("X-Amz-Date") }, "SignatureDoesNotMatch"},
		"another body": {"iam", func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(strings.Replace(form, "ListRoles", "ListRoleZ", 1)))
		}, "InvalidAction"},
		"another query": {"iam", func(r *http.Request) { r.URL.RawQuery = "a=b" }, "SignatureDoesNotMatch"},
	} {
		_, body := post(t, s, c.service, form, c.change)
		if !strings.Contains(body, "<Code>"+c.code+"</Code>") {
			t.Errorf("%s: got %s, want %s", name, body, c.code)
		}
	}
}

func TestSTSNeedsNoSignatureForAToken(t *testing.T) {
	t.Parallel()
	p := stage(t, nil)
	form := url.Values{"Action": {"AssumeRoleWithWebIdentity"}, "Version": {stsVersion}, "RoleArn": {roleARN}, "RoleSessionName": {"app"},
		"WebIdentityToken": {p.key.Sign(t, cluster.Workload(p.clock.Now()))}}
	status, body := post(t, p.Server, "sts", form.Encode(), func(r *http.Request) { r.Header.Del("Authorization") })
	if status != http.StatusOK || !strings.Contains(body, "<AssumeRoleWithWebIdentityResult>") {
		t.Error(body)
	}
	for _, c := range p.Calls() {
		if _, held := c.Params["WebIdentityToken"]; held {
			t.Error("a token is kept in the record of calls")
		}
	}
}
