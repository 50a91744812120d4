package awsiam

import (
	"strings"
	"testing"
)

const (
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
		{name: "empty client ID", provider: func(p *Provider) { p.ClientIDs = []string{"openshift", ""} }, want: "none that is empty"},
		{name: "thumbprint", provider: func(p *Provider) { p.Thumbprints = []string{"AB:CD"} }, want: "40 hexadecimal digits"},
		{name: "reserved tag", provider: func(p *Provider) { p.Tags = map[string]string{"AWS:x": "y"} }, want: "begins with aws:"},
		{name: "our own tag", role: func(r *Role) { r.Tags = map[string]string{"name": "x"} }, want: "set twice"},
		{name: "boundary", role: func(r *Role) { r.Boundary = "boundary" }, want: "is not the ARN of a managed policy"},
		{name: "boundary of AWS", role: func(r *Role) { r.Boundary = "arn:aws:iam::aws:policy/PowerUserAccess" }},
		{name: "role name", role: func(r *Role) { r.Name = "a b" }, want: "the name must have"},
		{name: "no subjects", role: func(r *Role) { r.Subjects = nil }, want: "no service account"},
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
