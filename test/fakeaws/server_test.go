package fakeaws

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

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

func TestEnvIsAllThatTheSDKNeeds(t *testing.T) {
	s := Start(t, Options{Partition: "aws-us-gov"})
	for _, line := range s.Env() {
		name, value, _ := strings.Cut(line, "=")
		t.Setenv(name, value)
	}
	c := must(defaultConfig(t.Context()))(t)
	got := must(sts.NewFromConfig(c).GetCallerIdentity(t.Context(), nil))(t)
	if *got.Arn != "arn:aws-us-gov:iam::123456789012:user/provisioner" {
		t.Error(*got.Arn)
	}
	must(iam.NewFromConfig(c).ListRoles(t.Context(), nil))(t)
}

func TestTheCallerMayDoOnlyWhatItsPolicyAllows(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Policy: `{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Action":["iam:CreateRole","iam:getrole"],"Resource":"arn:aws:iam::123456789012:role/prod-*"},
		{"Effect":"Allow","Action":"iam:*OpenIDConnectProvider","Resource":"*"},
		{"Effect":"Deny","Action":"iam:DeleteOpenIDConnectProvider","Resource":"*"},
		{"Effect":"Allow","Action":"iam:ListRoles","Resource":"*","Condition":{"Bool":{"aws:SecureTransport":"true"}}}]}`})
	c, ctx := iamOf(s), t.Context()
	must(c.CreateRole(ctx, newRoleInput("prod-a")))(t)
	must(c.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String("prod-a")}))(t)
	must(c.CreateOpenIDConnectProvider(ctx, &makeProvider{Url: aws.String(issuerURL), Tags: tagged("a")}))(t)
	must(stsOf(s).GetCallerIdentity(ctx, nil))(t)

	_, err := c.CreateRole(ctx, newRoleInput("other"))
	refused(t, err, "AccessDenied", "User: arn:aws:iam::123456789012:user/provisioner is not authorized to perform: iam:CreateRole on "+
		"resource: arn:aws:iam::123456789012:role/other because no identity-based policy allows the iam:CreateRole action")
	in := newRoleInput("prod-b")
	in.Tags = tagged("a")
	_, err = c.CreateRole(ctx, in)
	refused(t, err, "AccessDenied", "iam:TagRole")
	_, err = c.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String("absent")})
	refused(t, err, "AccessDenied", "iam:GetRole")
	_, err = c.ListRoles(ctx, nil)
	refused(t, err, "AccessDenied", "iam:ListRoles")
	_, err = c.DeleteOpenIDConnectProvider(ctx, &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(providerName)})
	refused(t, err, "AccessDenied", "iam:DeleteOpenIDConnectProvider")
	_, err = c.ListOpenIDConnectProviders(ctx, nil)
	refused(t, err, "AccessDenied", "iam:ListOpenIDConnectProviders")
	_, err = c.GetUser(ctx, nil)
	refused(t, err, "AccessDenied", "iam:GetUser")
	if last := s.Calls()[len(s.Calls())-1]; last.Action != "GetUser" || last.Code != "AccessDenied" {
		t.Errorf("%+v", last)
	}
}

func TestReadsLagBehind(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s := Start(t, Options{ConsistencyDelay: 10 * time.Second, Now: clock.Now})
	c, ctx := iamOf(s), t.Context()
	get := func() error { _, err := c.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String("r")}); return err }
	must(c.CreateRole(ctx, newRoleInput("r")))(t)
	refused(t, get(), "NoSuchEntity", "")
	_, err := c.CreateRole(ctx, newRoleInput("r"))
	refused(t, err, "EntityAlreadyExists", "")
	must(c.PutRolePolicy(ctx,
		&iam.PutRolePolicyInput{RoleName: aws.String("r"), PolicyName: aws.String("p"), PolicyDocument: aws.String(permissions)}))(t)
	clock.Pass(9 * time.Second)
	refused(t, get(), "NoSuchEntity", "")
	clock.Pass(time.Second)
	if err := get(); err != nil {
		t.Error(err)
	}
	must(c.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: aws.String("r"), PolicyName: aws.String("p")}))(t)
	must(c.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: aws.String("r")}))(t)
	if err := get(); err != nil {
		t.Error("a role that is deleted is still seen:", err)
	}
	clock.Pass(10 * time.Second)
	refused(t, get(), "NoSuchEntity", "")
	must(c.CreateRole(ctx, newRoleInput("r")))(t)
	if n := len(s.history); n != 2 {
		t.Errorf("%d versions of the account are kept, where reads can see one of two", n)
	}
}

func TestWritesAreThrottledAndReadsAreNot(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s := Start(t, Options{WritesPerSecond: 5, Now: clock.Now})
	write := func() error {
		_, err := iamOf(s).CreateOpenIDConnectProvider(t.Context(), &makeProvider{Url: aws.String(issuerURL)})
		return err
	}
	for i := range 7 {
		want := "EntityAlreadyExists"
		if i >= 5 {
			want = "Throttling"
		}
		if err := write(); i > 0 {
			refused(t, err, want, "")
		}
	}
	for range 20 {
		must(iamOf(s).ListRoles(t.Context(), nil))(t)
	}
	refused(t, write(), "Throttling", "Rate exceeded")
	clock.Pass(200 * time.Millisecond)
	refused(t, write(), "EntityAlreadyExists", "")
	refused(t, write(), "Throttling", "")
}

func TestFaultsAreAsReal(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	c, ctx := iamOf(s), t.Context()
	for name, x := range map[string]struct {
		fault Fault
		code  string
		there bool
	}{
		"throttled":   {Throttle(), "Throttling", false},
		"unavailable": {Unavailable(), "ServiceUnavailable", false},
		"other":       {Fail(http.StatusConflict, "ConcurrentModification", "later"), "ConcurrentModification", false},
		"lost":        {Fault{Lost: true}, "", true},
		"late":        {Fault{Late: time.Millisecond}, "", true},
	} {
		s.Fault(func(call Call) Fault {
			if call.Action == "CreateRole" {
				return x.fault
			}
			return Fault{}
		})
		_, err := c.CreateRole(ctx, newRoleInput(name))
		var api smithy.APIError
		switch {
		case x.code != "":
			refused(t, err, x.code, "")
		case name == "lost" && (err == nil || errors.As(err, &api)):
			t.Errorf("lost: got %v, want an error of the connection", err)
		case name == "late" && err != nil:
			t.Error(err)
		}
		_, err = c.GetRole(ctx, &iam.GetRoleInput{RoleName: &name})
		if there := err == nil; there != x.there {
			t.Errorf("%s: there is %v", name, there)
		}
	}
}
