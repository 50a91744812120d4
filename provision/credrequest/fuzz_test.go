package credrequest_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/keypost/keypost/provision/credrequest"
)

// FuzzRead: no input makes it crash; what it hands out fits where it goes (file names, an ini file, ARNs, a policy);
// what it says fits on a line.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"requests/0000_10_storage.yaml", "requests/0000_20_operator.yml", "requests/0000_30_other.yaml", "clouds/0000_10_gcp.yaml",
		"clouds/0000_20_azure.yaml"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, text := range []string{
		valid,
		valid + "...\n" + valid,
		validGCP,
		validAzure,
		"a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]\n",
		strings.Replace(valid, "spec:\n", "spec:\n  <<: {cloudTokenPath: /t}\n", 1),
		strings.Replace(valid, "v}", "!!binary aGk=, w: 2020-01-01, x: ~, 0x1F: .inf}", 1),
		"\xff\xfea\x00:\x00",
		"? [a]\n: {b: c}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, cloud := range []credrequest.Cloud{credrequest.AWS, credrequest.GCP, credrequest.Azure} {
			requests, skipped, err := credrequest.Read(cloud, "f.yaml", data, false)
			if err != nil {
				if requests != nil || skipped != nil {
					t.Errorf("%v with %v, %v", err, requests, skipped)
				}
				skipped = strings.Split(err.Error(), "\n")
			}
			for _, line := range skipped {
				if line == "" || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("line %q", line)
				}
			}
			for _, r := range requests {
				fits(t, cloud, r)
			}
		}
	})
}

func fits(t *testing.T, cloud credrequest.Cloud, r credrequest.Request) {
	for _, name := range append([]string{r.Name, r.SecretName, r.SecretNamespace}, r.ServiceAccounts...) {
		if name == "" || len(name) > 253 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" || strings.Contains(name, "..") {
			t.Errorf("name %q", name)
		}
	}
	written := []string{r.CloudTokenPath, r.Namespace, r.AWS.RoleARN, r.GCP.ServiceAccountEmail, r.GCP.Audience, r.Azure.ClientID, r.Azure.TenantID,
		r.Azure.SubscriptionID, r.Azure.Region}
	written = append(append(append(written, r.GCP.PredefinedRoles...), r.GCP.Permissions...), r.Azure.Permissions...)
	for _, s := range append(written, r.Azure.DataPermissions...) {
		if strings.ContainsAny(s, " \t\r\n\"'\\`\x00") {
			t.Errorf("%q", s)
		}
	}
	if !r.HasIdentity() && len(r.ServiceAccounts) == 0 {
		t.Errorf("an identity that nobody may use: %+v", r)
	}
	asks := map[credrequest.Cloud]int{
		credrequest.AWS: len(r.AWS.Statements), credrequest.GCP: len(r.GCP.PredefinedRoles) + len(r.GCP.Permissions),
		credrequest.Azure: len(r.Azure.Roles) + len(r.Azure.Permissions) + len(r.Azure.DataPermissions),
	}
	if !r.HasIdentity() && asks[cloud] == 0 {
		t.Errorf("an identity for nothing: %+v", r)
	}
	if asks[credrequest.AWS]+asks[credrequest.GCP]+asks[credrequest.Azure] != asks[cloud] {
		t.Errorf("read for %s, it asks another cloud: %+v", cloud, r)
	}
	policy, err := credrequest.Policy(r.AWS.Statements)
	if err != nil || !json.Valid(policy) {
		t.Errorf("policy %s: %v", policy, err)
	}
}
