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
		role     func(*Role)
		roles    []Role // beside the good one
		want     string // part of the one sentence; empty: all is well
	}{
		{name: "all is well"},
		{name: "empty client ID", provider: func(p *Provider) { p.ClientIDs = []string{"openshift", ""} }, want: "none that is empty"},
		{name: "our own tag", role: func(r *Role) { r.Tags = map[string]string{"name": "x"} }, want: "set twice"},
		{name: "no subjects", role: func(r *Role) { r.Subjects = nil }, want: "no service account"},
		{name: "collision", roles: []Role{{Name: "C-ns-secret", For: "CredentialsRequest ns/b (b.yaml)", Subjects: []string{subB},
			Owner: OwnedBy("c")}},
			want: "CredentialsRequest ns/a (a.yaml) and CredentialsRequest ns/b (b.yaml) come to the same role name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, tr, r := goodProvider(), newTrust(), goodRole()
			for _, change := range []func(){
				func() { tt.provider(&p) }, func() { tt.role(&r) },
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
