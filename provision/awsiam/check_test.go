package awsiam

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const (
	oldARN = "arn:aws:iam::111122223333:oidc-provider/old.example.com"
	newARN = "arn:aws:iam::111122223333:oidc-provider/new.example.com/a"
	subA   = "system:serviceaccount:ns:a"
	subB   = "system:serviceaccount:ns:b"
)

func newTrust() Trust {
	return Trust{ProviderARN: newARN, Issuer: "https://new.example.com/a", Audiences: []string{"sts.amazonaws.com", "openshift"}}
}

func goodRole() Role {
	return Role{Name: "c-ns-secret", For: "CredentialsRequest ns/a (a.yaml)", Subjects: []string{subA}, Owner: OwnedBy("c"),
		Policy: []byte(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s:A"],"Resource":"*"}]}`)}
}

func goodProvider() Provider {
	return Provider{URL: "https://new.example.com/a", ClientIDs: []string{"openshift"}, Owner: OwnedBy("c")}
}

func many(n int, format string) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(format, i))
	}
	return out
}

func TestCheckHoldsWhatIsWantedAgainstAWSsRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		provider func(*Provider)
		trust    func(*Trust)
		role     func(*Role)
		roles    []Role // beside the good one
		want     string // part of the one sentence; empty: all is well
	}{
		{name: "all is well"},
		{name: "scheme", provider: func(p *Provider) { p.URL = "http://a.example.com" }, want: "begin with https://"},
		{name: "port", provider: func(p *Provider) { p.URL = "https://a.example.com:8443" }, want: "have no port"},
		{name: "query", provider: func(p *Provider) { p.URL = "https://a.example.com?x" }, want: "no query"},
		{name: "slash", provider: func(p *Provider) { p.URL = "https://a.example.com/" }, want: "not end in a slash"},
		{name: "long", provider: func(p *Provider) { p.URL = "https://a.example.com/" + strings.Repeat("x", 250) }, want: "at most 255"},
		{name: "case", provider: func(p *Provider) { p.URL = "https://A.example.com" }, want: "lower case"},
		{name: "thumbprint", provider: func(p *Provider) { p.Thumbprints = []string{"AB:CD"} }, want: "40 hexadecimal digits"},
		{name: "thumbprints", provider: func(p *Provider) { p.Thumbprints = many(6, "%040d") }, want: "6 thumbprints"},
		{name: "client IDs", provider: func(p *Provider) { p.ClientIDs = many(101, "client-%d") }, want: "101 client IDs"},
		{name: "client ID", provider: func(p *Provider) { p.ClientIDs = []string{strings.Repeat("x", 256)} }, want: "256 characters"},
		{name: "reserved tag", provider: func(p *Provider) { p.Tags = map[string]string{"AWS:x": "y"} }, want: "begins with aws:"},
		{name: "tags", provider: func(p *Provider) {
			p.Tags = map[string]string{}
			for _, k := range many(49, "k%d") {
				p.Tags[k] = ""
			}
		}, want: "51 tags"},
		{name: "our own tag", role: func(r *Role) { r.Tags = map[string]string{"name": "x"} }, want: "set twice"},
		{name: "long tag", role: func(r *Role) { r.Tags = map[string]string{"k": strings.Repeat("x", 257)} }, want: "at most 256"},
		{name: "tag characters", role: func(r *Role) { r.Tags = map[string]string{"k": "a;b"} }, want: "may hold"},
		{name: "no owner", role: func(r *Role) { r.Owner = Owner{} }, want: "no owner"},
		{name: "another issuer's provider", trust: func(tr *Trust) { tr.ProviderARN = oldARN },
			want: "is for the issuer https://old.example.com"},
		{name: "not a provider", trust: func(tr *Trust) { tr.ProviderARN = "arn:aws:iam::111122223333:role/x" },
			want: "is not the ARN of an IAM OIDC"},
		{name: "no account yet", trust: func(tr *Trust) { tr.ProviderARN = "" }},
		{name: "role name", role: func(r *Role) { r.Name = "a b" }, want: "the name must have"},
		{name: "description", role: func(r *Role) { r.Description = "α" }, want: "beyond Latin-1"},
		{name: "no subjects", role: func(r *Role) { r.Subjects = nil }, want: "no service account"},
		{name: "wildcard", role: func(r *Role) { r.Subjects = []string{"system:serviceaccount:ns:*"} },
			want: "is not a service account's subject"},
		{name: "boundary", role: func(r *Role) { r.Boundary = "boundary" }, want: "is not the ARN of a managed policy"},
		{name: "boundary of no account yet", trust: func(tr *Trust) { tr.ProviderARN = "" },
			role: func(r *Role) { r.Boundary = "arn:aws-cn:iam::444455556666:policy/b" }},
		{name: "boundary of AWS", role: func(r *Role) { r.Boundary = "arn:aws:iam::aws:policy/PowerUserAccess" }},
		{name: "boundary's partition", role: func(r *Role) { r.Boundary = "arn:aws-cn:iam::111122223333:policy/b" },
			want: "of the partition aws-cn"},
		{name: "managed policy's account", role: func(r *Role) { r.ManagedPolicies = []string{"arn:aws:iam::444455556666:policy/b"} },
			want: "of account 444455556666"},
		{name: "trust policy", role: func(r *Role) { r.Subjects = many(40, "system:serviceaccount:some-namespace:service-account-%d") },
			want: "AWS allows 2048"},
		{name: "trust policy, raised quota", trust: func(tr *Trust) { tr.MaxLength = 8192 },
			role: func(r *Role) { r.Subjects = many(40, "system:serviceaccount:some-namespace:service-account-%d") }},
		{name: "inline policy", role: func(r *Role) {
			r.Policy = []byte(strings.Replace(string(r.Policy), `"*"`, string(asJSON(many(300, "arn:aws:s3:::some-bucket-with-a-name/%d"))), 1))
		}, want: "AWS allows 10240"},
		{name: "white space is free", role: func(r *Role) { r.Policy = append(r.Policy, strings.Repeat(" ", 20000)...) }},
		{name: "policy", role: func(r *Role) { r.Policy = []byte(`[]`) }, want: "not a JSON policy document"},
		{name: "policy characters", role: func(r *Role) { r.Policy = []byte(strings.Replace(string(r.Policy), "s:A", "s:\u4e16", 1)) },
			want: "Latin-1 only"},
		{name: "collision", roles: []Role{{Name: "C-ns-secret", For: "CredentialsRequest ns/b (b.yaml)", Subjects: []string{subB},
			Owner: OwnedBy("c")}},
			want: "CredentialsRequest ns/a (a.yaml) and CredentialsRequest ns/b (b.yaml) come to the same role name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, tr, r := goodProvider(), newTrust(), goodRole()
			for _, change := range []func(){
				func() { tt.provider(&p) }, func() { tt.trust(&tr) }, func() { tt.role(&r) },
			} {
				func() {
					defer func() { _ = recover() }() // nil functions change nothing
					change()
				}()
			}
			err := Check(p, tr, append([]Role{r}, tt.roles...))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) ||
				strings.Contains(err.Error(), "\n")) {
				t.Errorf("got %v, want one sentence with %q", err, tt.want)
			}
		})
	}
	if err := Check(Provider{}, Trust{}, nil); err != nil {
		t.Errorf("nothing is wanted: %v", err)
	}
}

func TestAccountsOfEveryPartition(t *testing.T) {
	t.Parallel()
	for _, partition := range strings.Fields("aws aws-us-gov aws-cn aws-iso aws-iso-b aws-eusc") {
		a, err := parseAccount("111122223333", "arn:"+partition+":sts::111122223333:assumed-role/Admin/me")
		if err != nil || a.Partition != partition {
			t.Errorf("%+v, %v", a, err)
		}
		arn := a.ProviderARN("https://oidc.example.com/a")
		if want := "arn:" + partition + ":iam::111122223333:oidc-provider/oidc.example.com/a"; arn != want {
			t.Errorf("got %s, want %s", arn, want)
		}
		if url, err := ProviderURL(arn); err != nil || url != "https://oidc.example.com/a" {
			t.Errorf("got %s, %v", url, err)
		}
	}
	for _, bad := range [][2]string{{"", "arn:aws:iam::1:root"}, {"111122223333", "me"}} {
		if a, err := parseAccount(bad[0], bad[1]); err == nil {
			t.Errorf("%q gives %+v", bad, a)
		}
	}
}

// Each part of an ARN alone makes it another thing's.
func TestPolicyARN(t *testing.T) {
	t.Parallel()
	const is = "is not the ARN of a managed policy"
	for arn, want := range map[string]string{
		"arn:aws:iam::111122223333:policy/b":          "",
		"arn:aws:iam::111122223333:policy/path/b":     "",
		"arn:aws:iam::aws:policy/b":                   "",
		"":                                            is,
		"policy/b":                                    is,
		"arn:aws:iam::111122223333:policy/":           is,
		"arn:aws:iam::111122223333:policy":            is,
		"arn:aws:iam::111122223333:role/b":            is,
		"arn:aws:iam::111122223333:":                  is,
		"arn:aws:iam:us-east-1:111122223333:policy/b": is,
		"arn:aws:sts::111122223333:policy/b":          is,
		"arn::iam::111122223333:policy/b":             is,
		"urn:aws:iam::111122223333:policy/b":          is,
		"arn:aws:iam::11112222333:policy/b":           is,
		"arn:aws:iam::1111222233334:policy/b":         is,
		"arn:aws:iam::11112222333x:policy/b":          is,
		"arn:aws:iam::AWS:policy/b":                   is,
		"arn:aws:iam:::policy/b":                      is,
		"arn:aws-us-gov:iam::111122223333:policy/b":   "is of the partition aws-us-gov, and the account of aws",
		"arn:aws-cn:iam::aws:policy/b":                "is of the partition aws-cn",
		"arn:aws:iam::444455556666:policy/b":          "is of account 444455556666, and the role of 111122223333",
	} {
		err := checkPolicyARN("managed policy", arn, newTrust())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", arn, err, want)
		}
	}
}

func TestProviderURLRefuses(t *testing.T) {
	t.Parallel()
	for _, arn := range []string{
		"", "oidc-provider/h", "arn:aws:iam::111122223333:oidc-provider/", "arn:aws:iam::111122223333:saml-provider/h", "arn:aws:iam::aws:oidc-provider/h",
		"arn:aws:iam:us-east-1:111122223333:oidc-provider/h", "arn:aws:sts::111122223333:oidc-provider/h", "arn::iam::111122223333:oidc-provider/h",
	} {
		if u, err := ProviderURL(arn); err == nil {
			t.Errorf("%q: %s", arn, u)
		}
	}
}

// That STS gave no answer says something else than that there are no credentials to ask it with.
func TestUnsent(t *testing.T) {
	t.Parallel()
	call := func(service string, err error) error { return &smithy.OperationError{ServiceID: service, Err: err} }
	lost := &smithyhttp.RequestSendError{Err: errors.New("connection refused")}
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"sent to nobody":                  {call("STS", lost), true},
		"refused":                         {call("STS", &smithy.GenericAPIError{Code: "AccessDenied"}), false},
		"credentials of a role":           {call("STS", fmt.Errorf("get identity: get credentials: %w", call("STS", lost))), true},
		"credentials of a machine":        {call("STS", fmt.Errorf("get identity: get credentials: %w", call("ec2imds", lost))), false},
		"credentials of a container":      {call("STS", fmt.Errorf("get identity: get credentials: %w", lost)), false},
		"credentials of a machine, twice": {call("STS", call("STS", fmt.Errorf("get identity: get credentials: %w", call("ec2imds", lost)))), false},
		"another service":                 {call("IAM", lost), false},
		"no call":                         {lost, false},
	} {
		if got := unsent(tt.err); got != tt.want {
			t.Errorf("%s: unsent(%v) = %t", name, tt.err, got)
		}
	}
}
