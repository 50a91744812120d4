package main

import (
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
)

// What testdata/ccoctl/want holds is what ccoctl writes for testdata/ccoctl/requests in a dry run, with a permissions
// boundary. Two lists say all of how our files compare: equal and better. A file that is in neither fails the test.

// equal lists the files that scripts read. JSON is equal in what it says: order and white space may differ.
func equal() map[string]func(ours, ccoctls []byte) bool {
	same := func(a, b []byte) bool { return string(a) == string(b) }
	return map[string]func(ours, ccoctls []byte) bool{
		"manifests/*":             same,
		"06-*-policy.json":        same,
		"05-*-role.json":          sameJSON,
		"02-openid-configuration": sameJSON,
		"03-keys.json":            sameJSON,
		"04-*.json":               sameJSON,
	}
}

// better lists what we write otherwise, each as a change to ccoctl's file that makes it ours.
func better() []difference {
	const host = "oidc.example.com/mycluster"
	return []difference{
		{"02-openid-configuration", "a claim is listed once", func(doc map[string]any) {
			doc["claims_supported"] = []any{"aud", "exp", "iat", "iss", "sub"}
		}},
		{"04-*.json", "the provider is made with its tags in one call: ccoctl's second call may never come", func(doc map[string]any) {
			doc["Tags"] = ownTags()
		}},
		{"04-*.json", "no thumbprint has to be filled in: AWS finds out its own and needs none for a public CA", func(doc map[string]any) {
			delete(doc, "ThumbprintList")
		}},
		{"05-*-role.json", "the issuer is taken from the ARN: no placeholder has to be filled in", func(doc map[string]any) {
			editTrust(doc, func(conditions map[string]any) {
				conditions[host+":sub"] = conditions["<enter_issuer_url_here>:sub"]
				delete(conditions, "<enter_issuer_url_here>:sub")
			})
		}},
		{"05-*-role.json", "the token must be meant for AWS: without :aud, one for any registered client would do", func(doc map[string]any) {
			editTrust(doc, func(conditions map[string]any) { conditions[host+":aud"] = []any{"openshift", "sts.amazonaws.com"} })
		}},
	}
}

type difference struct {
	file, why string
	change    func(ccoctls map[string]any)
}

func ownTags() []any {
	return []any{
		map[string]any{"Key": "openshift.io/cloud-credential-operator/mycluster", "Value": "owned"},
		map[string]any{"Key": "Name", "Value": "mycluster"},
	}
}

func editTrust(role map[string]any, edit func(conditions map[string]any)) {
	var trust map[string]any
	if err := json.Unmarshal([]byte(role["AssumeRolePolicyDocument"].(string)), &trust); err != nil {
		panic(err)
	}
	statement := trust["Statement"].([]any)[0].(map[string]any)
	edit(statement["Condition"].(map[string]any)["StringEquals"].(map[string]any))
	text, _ := json.Marshal(trust)
	role["AssumeRolePolicyDocument"] = string(text)
}

// sameJSON also looks into strings that hold JSON themselves. Lists of strings are sets: to IAM, and to readers of the
// discovery document.
func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(unfolded(x), unfolded(y))
}

func unfolded(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = unfolded(v[k])
		}
	case []any:
		for i := range v {
			v[i] = unfolded(v[i])
		}
		slices.SortFunc(v, func(a, b any) int {
			x, _ := a.(string)
			y, _ := b.(string)
			return strings.Compare(x, y)
		})
	case string:
		var inner any
		if strings.HasPrefix(v, "{") && json.Unmarshal([]byte(v), &inner) == nil {
			return unfolded(inner)
		}
	}
	return v
}

func TestFilesAreCcoctls(t *testing.T) {
	out := t.TempDir()
	keypost(t, "aws", "create-identity-provider", "--dry-run", "--name", "mycluster", "--region", "us-east-1", "--output-dir", out,
		"--issuer-url", "https://oidc.example.com/mycluster", "--public-key-file", "testdata/ccoctl/signer.public")
	keypost(t, "aws", "create-iam-roles", "--dry-run", "--name", "mycluster", "--output-dir", out,
		"--credentials-requests-dir", "testdata/ccoctl/requests", "--permissions-boundary-arn", "arn:aws:iam::123456789012:policy/boundary",
		"--identity-provider-arn", "arn:aws:iam::123456789012:oidc-provider/oidc.example.com/mycluster")
	ours, ccoctls := filesBelow(t, out), filesBelow(t, "testdata/ccoctl/want")
	if names, want := slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(ccoctls)); len(ours) != 10 || !slices.Equal(names, want) {
		t.Errorf("the files are %q, and ccoctl's %q", names, want)
	}
	for name := range ours {
		compareFile(t, name, ours[name], ccoctls[name])
	}
}

func compareFile(t *testing.T, name string, ours, ccoctls []byte) {
	for pattern, same := range equal() {
		if ok, _ := filepath.Match(pattern, name); !ok {
			continue
		}
		if !same(ours, improve(t, name, ccoctls, nil)) {
			t.Errorf("%s is\n%s\nand ccoctl's\n%s", name, ours, ccoctls)
		}
		for i, d := range better() { // each of the list is true
			if ok, _ := filepath.Match(d.file, name); ok && same(ours, improve(t, name, ccoctls, &i)) {
				t.Errorf("%s is no better: %s", name, d.why)
			}
		}
		return
	}
	t.Errorf("%s is in neither list", name)
}

// improve makes ccoctl's file better in all ways but one.
func improve(t *testing.T, name string, ccoctls []byte, but *int) []byte {
	var doc map[string]any
	changed := false
	for i, d := range better() {
		if ok, _ := filepath.Match(d.file, name); !ok || but != nil && i == *but {
			continue
		}
		if doc == nil {
			if err := json.Unmarshal(ccoctls, &doc); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		d.change(doc)
		changed = true
	}
	if !changed {
		return ccoctls
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// create-all knows neither account nor partition in a dry run; ccoctl writes an empty principal, which IAM refuses
// without a word of what is missing.
func TestDryRunSaysWhatToFillIn(t *testing.T) {
	for _, tt := range []struct{ region, account, want string }{
		{"us-east-1", "", "arn:aws:iam::ENTER_ACCOUNT_ID_HERE:oidc-provider/oidc.example.com/mycluster"},
		{"us-gov-west-1", "", "arn:aws-us-gov:iam::ENTER_ACCOUNT_ID_HERE:oidc-provider/oidc.example.com/mycluster"},
		{"eusc-de-east-1", "123456789012", "arn:aws-eusc:iam::123456789012:oidc-provider/oidc.example.com/mycluster"},
		{"cn-north-1", "123456789012", "arn:aws-cn:iam::123456789012:oidc-provider/oidc.example.com/mycluster"},
		{"us-iso-east-1", "123456789012", "arn:aws-iso:iam::123456789012:oidc-provider/oidc.example.com/mycluster"},
		{"us-isob-east-1", "123456789012", "arn:aws-iso-b:iam::123456789012:oidc-provider/oidc.example.com/mycluster"},
	} {
		out := t.TempDir()
		args := []string{"aws", "create-all", "--dry-run", "--name", "mycluster", "--region", tt.region, "--output-dir", out,
			"--issuer-url", "https://oidc.example.com/mycluster", "--public-key-file", "testdata/ccoctl/signer.public",
			"--credentials-requests-dir", "testdata/ccoctl/requests"}
		if tt.account != "" {
			args = append(args, "--account", tt.account)
		}
		keypost(t, args...)
		for name, data := range filesBelow(t, out) {
			if strings.HasPrefix(name, "05-") && !strings.Contains(string(data), tt.want) {
				t.Errorf("%s: %s does not have %s:\n%s", tt.region, name, tt.want, data)
			}
		}
	}
}

// keypost runs a command in this process and returns what it wrote to stdout and stderr. There is no store and no AWS.
func keypost(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	t.Setenv("KEYPOST_STORE", "")
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	var out, errs strings.Builder
	if code := run(context.Background(), args, streams{in: strings.NewReader(""), out: &out, err: &errs}); code != cli.ExitDone {
		t.Fatalf("keypost %s: exit code %d\n%s", strings.Join(args, " "), code, errs.String())
	}
	return out.String(), errs.String()
}

func filesBelow(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// ccoctlFlags are the flags of a command of ccoctl's, those that it needs and the others.
type ccoctlFlags struct{ required, optional string }

// TestFlagsAreCcoctls: a script written for ccoctl needs one other word and --issuer-url.
func TestFlagsAreCcoctls(t *testing.T) {
	checkFlags(t, "aws", map[string]ccoctlFlags{
		"create-key-pair":          {"", "output-dir"},
		"create-identity-provider": {"name region issuer-url", "output-dir public-key-file dry-run create-private-s3-bucket"},
		"create-iam-roles": {"name credentials-requests-dir identity-provider-arn",
			"region output-dir dry-run permissions-boundary-arn enable-tech-preview"},
		"create-all": {"name region credentials-requests-dir issuer-url",
			"output-dir public-key-file dry-run create-private-s3-bucket permissions-boundary-arn enable-tech-preview"},
		"delete": {"name region", ""},
	})
	checkFlags(t, "gcp", map[string]ccoctlFlags{
		"create-key-pair":               {"", "output-dir"},
		"create-workload-identity-pool": {"name project", "output-dir dry-run"},
		"create-workload-identity-provider": {"name project workload-identity-pool issuer-url",
			"region public-key-file key-storage-method output-dir dry-run"},
		"create-service-accounts": {"name project workload-identity-pool workload-identity-provider credentials-requests-dir",
			"enable-tech-preview output-dir dry-run"},
		"create-all": {"name project credentials-requests-dir issuer-url", "region public-key-file key-storage-method enable-tech-preview output-dir"},
		"delete":     {"name project", "credentials-requests-dir force-delete-custom-roles"},
	})
}

func checkFlags(t *testing.T, cloud string, commands map[string]ccoctlFlags) {
	t.Helper()
	for command, flags := range commands {
		cmd, _, err := newRoot(&cli.Factory{}).Find([]string{cloud, command})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(flags.required + " " + flags.optional) {
			f := cmd.Flag(name) // its own, or one that is common to the cloud's commands
			if f == nil {
				t.Errorf("%s %s has no --%s", cloud, command, name)
				continue
			}
			required := slices.Contains(strings.Fields(cmd.Use), "--"+name) // as cli asks for it
			if want := slices.Contains(strings.Fields(flags.required), name); required != want {
				t.Errorf("%s %s --%s: required %v, want %v", cloud, command, name, required, want)
			}
		}
	}
}
