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
	for _, name := range []string{"0000_10_storage.yaml", "0000_20_operator.yml", "0000_30_other.yaml"} {
		data, err := os.ReadFile("testdata/requests/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, text := range []string{
		valid,
		valid + "...\n" + valid,
		"a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]\n",
		strings.Replace(valid, "spec:\n", "spec:\n  <<: {cloudTokenPath: /t}\n", 1),
		strings.Replace(valid, "v}", "!!binary aGk=, w: 2020-01-01, x: ~, 0x1F: .inf}", 1),
		"\xff\xfea\x00:\x00",
		"? [a]\n: {b: c}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		requests, skipped, err := credrequest.Read("f.yaml", data, false)
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
			fits(t, r)
		}
	})
}

func fits(t *testing.T, r credrequest.Request) {
	for _, name := range append([]string{r.Name, r.SecretName, r.SecretNamespace}, r.ServiceAccounts...) {
		if name == "" || len(name) > 253 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" || strings.Contains(name, "..") {
			t.Errorf("name %q", name)
		}
	}
	if strings.ContainsAny(r.CloudTokenPath+r.RoleARN+r.Namespace, " \t\r\n\"'\x00") {
		t.Errorf("%q, %q, %q", r.CloudTokenPath, r.RoleARN, r.Namespace)
	}
	if r.RoleARN == "" && (len(r.ServiceAccounts) == 0 || len(r.Statements) == 0) {
		t.Errorf("a role that nobody may assume, or for nothing: %+v", r)
	}
	policy, err := credrequest.Policy(r.Statements)
	if err != nil || !json.Valid(policy) {
		t.Errorf("policy %s: %v", policy, err)
	}
}
