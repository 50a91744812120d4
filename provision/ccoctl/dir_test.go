package ccoctl_test

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/provision/ccoctl"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const arn = "arn:aws:iam::111122223333:role/demo-ns-a-creds"

// Installers and scripts take the files as ccoctl makes them: names, bytes (no newline at the end) and modes.
func TestFilesAreCcoctls(t *testing.T) {
	secret := ccoctl.Secret{Namespace: "ns-a", Name: "creds", RoleARN: arn}
	unknown := ccoctl.Secret{Namespace: "ns-a", Name: "creds"}
	elsewhere := secret
	elsewhere.TokenPath = "/var/run/secrets/other/token"
	google := ccoctl.GCPSecret{Namespace: "ns-a", Name: "creds", Email: "demo-a-1b2c3@demo-project.iam.gserviceaccount.com",
		Provider: "//iam.googleapis.com/projects/42/locations/global/workloadIdentityPools/demo/providers/demo"}
	azure := ccoctl.AzureSecret{Namespace: "ns-a", Name: "creds", ClientID: "c0000000-0000-4000-8000-000000000001",
		TenantID: "66666666-7777-8888-9999-000000000000", Region: "westeurope", SubscriptionID: "11111111-2222-3333-4444-555555555555",
		TokenPath: "/var/run/secrets/azure/tokens"}
	for _, tt := range []struct {
		name string
		file ccoctl.File
		path string
		mode fs.FileMode
		want string
	}{
		{"secret", secret.File(), "manifests/ns-a-creds-credentials.yaml", 0o600, `apiVersion: v1
stringData:
  credentials: |-
    [default]
    sts_regional_endpoints = regional
    role_arn = ` + arn + `
    web_identity_token_file = /var/run/secrets/openshift/serviceaccount/token
kind: Secret
metadata:
  name: creds
  namespace: ns-a
type: Opaque`},
		{"secret with a token elsewhere", elsewhere.File(), "manifests/ns-a-creds-credentials.yaml", 0o600, `apiVersion: v1
stringData:
  credentials: |-
    [default]
    sts_regional_endpoints = regional
    role_arn = ` + arn + `
    web_identity_token_file = /var/run/secrets/other/token
kind: Secret
metadata:
  name: creds
  namespace: ns-a
type: Opaque`},
		{"secret without a role", unknown.File(), "manifests/ns-a-creds-credentials.yaml", 0o600, `apiVersion: v1
stringData:
  credentials: |-
    [default]
    sts_regional_endpoints = regional
    role_arn = ` + `
    web_identity_token_file = /var/run/secrets/openshift/serviceaccount/token
kind: Secret
metadata:
  name: creds
  namespace: ns-a
type: Opaque
POPULATE ROLE ARN AND DELETE THIS LINE`},
		{"Google's secret", google.File(), "manifests/ns-a-creds-credentials.yaml", 0o600, `apiVersion: v1
data:
  service_account.json: ` + base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(`{
  >"type": "external_account",
  >"audience": "//iam.googleapis.com/projects/42/locations/global/workloadIdentityPools/demo/providers/demo",
  >"subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
  >"token_url": "https://sts.googleapis.com/v1/token",
  >"service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/`+
			`demo-a-1b2c3@demo-project.iam.gserviceaccount.com:generateAccessToken",
  >"credential_source": {
    >"file": "/var/run/secrets/openshift/serviceaccount/token",
    >"format": {
      >>"type": "text"
    >}
>}
}`, ">", "\t"))) + `
kind: Secret
metadata:
  name: creds
  namespace: ns-a
type: Opaque`},
		{"Google's secret in a dry run", ccoctl.GCPSecret{Namespace: "ns-a", Name: "creds", Script: "out/09-0-x.sh"}.File(), "manifests/ns-a-creds-credentials.yaml", 0o600, `apiVersion: v1
data:
  service_account.json: ` + `
kind: Secret
metadata:
  name: creds
  namespace: ns-a
type: Opaque
POPULATE service_account.json FIELD WITH BASE 64 ENCODED CREDENTIALS CONFIG JSON GENERATED FROM SCRIPT out/09-0-x.sh`},
		{"Azure's secret", azure.File(), "manifests/ns-a-creds-credentials.yaml", 0o600, `apiVersion: v1
stringData:
  azure_client_id: c0000000-0000-4000-8000-000000000001
  azure_tenant_id: 66666666-7777-8888-9999-000000000000
  azure_region: westeurope
  azure_subscription_id: 11111111-2222-3333-4444-555555555555
  azure_federated_token_file: /var/run/secrets/azure/tokens
kind: Secret
metadata:
  name: creds
  namespace: ns-a
type: Opaque`},
		{"Azure's secret in a dry run", ccoctl.AzureSecret{Namespace: "ns-a", Name: "creds", Region: "westeurope", SubscriptionID: azure.SubscriptionID}.File(),
			"manifests/ns-a-creds-credentials.yaml", 0o600, `apiVersion: v1
stringData:
  azure_client_id: ` + `
  azure_tenant_id: ` + `
  azure_region: westeurope
  azure_subscription_id: 11111111-2222-3333-4444-555555555555
  azure_federated_token_file: /var/run/secrets/openshift/serviceaccount/token
kind: Secret
metadata:
  name: creds
  namespace: ns-a
type: Opaque
POPULATE CLIENT ID AND TENANT ID AND DELETE THIS LINE`},
		{"Azure's webhook", ccoctl.AzureWebhookFile(azure.TenantID), "manifests/azure-ad-pod-identity-webhook-config.yaml", 0o600, `apiVersion: v1
stringData:
  azure_tenant_id: 66666666-7777-8888-9999-000000000000
kind: Secret
metadata:
  name: azure-credentials
  namespace: openshift-cloud-credential-operator
type: Opaque`},
		{"script", ccoctl.Script("01-x.sh", "to create x", "#!/bin/sh\n"), "01-x.sh", 0o744, "#!/bin/sh\n"},
		{"Google's discovery document", ccoctl.GCPDiscoveryFile([]byte("x")), "03-openid-configuration", 0o644, "x"},
		{"Google's JWKS", ccoctl.GCPJWKSFile([]byte("x")), "04-keys.json", 0o644, "x"},
		{"Azure's discovery document", ccoctl.AzureDiscoveryFile([]byte("x")), "openid-configuration", 0o644, "x"},
		{"Azure's JWKS", ccoctl.AzureJWKSFile([]byte("x")), "jwks", 0o644, "x"},
		{"issuer", ccoctl.AuthenticationFile("https://oidc.example.com/demo"), "manifests/cluster-authentication-02-config.yaml", 0o600,
			`apiVersion: config.openshift.io/v1
kind: Authentication
metadata:
  name: cluster
spec:
  serviceAccountIssuer: https://oidc.example.com/demo`},
		{"discovery document", ccoctl.DiscoveryFile([]byte("x")), "02-openid-configuration", 0o644, "x"},
		{"JWKS", ccoctl.JWKSFile([]byte("x")), "03-keys.json", 0o644, "x"},
		{"provider", ccoctl.ProviderFile([]byte("x")), "04-iam-identity-provider.json", 0o644, "x"},
		{"role", ccoctl.RoleID{Installation: "demo", Namespace: "ns-a", Secret: "creds"}.Files([]byte("x"), nil)[0], "05-0-demo-ns-a-creds-role.json", 0o644, "x"},
		{"policy", ccoctl.RoleID{Number: 12, Installation: "demo", Namespace: "ns-a", Secret: "creds"}.Files(nil, []byte("x"))[1], "06-12-demo-ns-a-creds-policy.json", 0o644, "x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			d, err := ccoctl.OpenDir(out, ccoctl.ManifestsDir)
			check(t, err)
			check(t, d.Write(tt.file))
			path := filepath.Join(out, filepath.FromSlash(tt.path))
			if d.Path(tt.file.Name) != path {
				t.Errorf("it is at %s, want %s", d.Path(tt.file.Name), path)
			}
			info, err := os.Stat(path)
			check(t, err)
			data, err := os.ReadFile(path)
			check(t, err)
			if info.Mode() != tt.mode || string(data) != tt.want {
				t.Errorf("mode %v, want %v; content\n%s\nwant\n%s", info.Mode(), tt.mode, data, tt.want)
			}
		})
	}
}

// tree lists what is in a directory: mode, name, content.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var lines []string
	check(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := e.Info()
		check(t, err)
		line := info.Mode().String() + " " + strings.TrimPrefix(path, dir+"/")
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			check(t, err)
			line += " " + string(data)
		}
		lines = append(lines, line)
		return nil
	}))
	slices.Sort(lines)
	return lines
}

func TestOpenDirMakesOneLevel(t *testing.T) {
	parent := t.TempDir()
	for range 2 { // the second time everything is there
		_, err := ccoctl.OpenDir(filepath.Join(parent, "out"), ccoctl.ManifestsDir, ccoctl.TLSDir)
		check(t, err)
	}
	want := []string{"drwx------ out", "drwx------ out/manifests", "drwx------ out/tls"}
	if got := tree(t, parent); !slices.Equal(got, want) {
		t.Errorf("made %v, want %v", got, want)
	}
	t.Chdir(parent)
	d, err := ccoctl.OpenDir("")
	check(t, err)
	if d.Path("03-keys.json") != "03-keys.json" {
		t.Errorf("path %s: what is given relative stays relative", d.Path("03-keys.json"))
	}
	d, err = ccoctl.OpenDir("out/")
	check(t, err)
	if d.Path("manifests/x.yaml") != "out/manifests/x.yaml" {
		t.Errorf("path %s", d.Path("manifests/x.yaml"))
	}
}

func TestOpenDirRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(dir string) error
		path string
		want string
	}{
		{"a missing parent", func(string) error { return nil }, "no/out", "/no/out: its parent does not exist; make it first (mkdir -p "},
		{"a file", func(d string) error { return os.WriteFile(d+"/out", nil, 0o600) }, "out", "not a directory"},
		{"a file in place of manifests", func(d string) error { return os.WriteFile(d+"/manifests", nil, 0o600) }, "",
			"manifests in it is not a directory; move it away"},
		{"a link in place of manifests", func(d string) error { return os.Symlink("elsewhere", d+"/manifests") }, "",
			"manifests in it is not a directory; move it away"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			check(t, tt.make(dir))
			before := tree(t, dir)
			_, err := ccoctl.OpenDir(filepath.Join(dir, tt.path), ccoctl.ManifestsDir)
			for _, err := range []error{err, ccoctl.CheckDir(filepath.Join(dir, tt.path))} {
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "output directory "+dir) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
			}
			if after := tree(t, dir); !slices.Equal(before, after) {
				t.Errorf("it made %v of %v", after, before)
			}
		})
	}
}

// What would refuse a file once everything is made refuses it before, and nothing is made or taken away.
func TestCheckDir(t *testing.T) {
	link := func(name string) func(string) error {
		return func(d string) error { return os.Symlink("elsewhere", filepath.Join(d, name)) }
	}
	secret := ccoctl.Secret{Namespace: "ns", Name: "a"}.File().Name
	for _, tt := range []struct {
		name string
		make func(dir string) error
		want string // empty if the directory is fine
	}{
		{"nothing", func(d string) error { return os.RemoveAll(d) }, ""},
		{"an empty directory", func(string) error { return nil }, ""},
		{"a link to a directory", func(d string) error { return errors.Join(os.Remove(d), os.Symlink(t.TempDir(), d)) }, ""},
		{"manifests of others", link("manifests/99_mine.yaml"), ""},
		{"a link into nowhere", func(d string) error { return errors.Join(os.RemoveAll(d), os.Symlink("no", d)) }, "no such file"},
		{"a link in place of tls", link("tls"), "tls in it is not a directory; move it away"},
		{"a link in place of a Secret", link(secret), secret + ": it is a symbolic link; remove it"},
		{"a directory in place of a Secret", func(d string) error { return os.Mkdir(filepath.Join(d, secret), 0o700) }, secret + ": it is not a regular file"},
		{"a link in place of the issuer", link(ccoctl.AuthenticationFile("").Name), "02-config.yaml: it is a symbolic link"},
		{"a link in place of the webhook's Secret", link(ccoctl.AzureWebhookFile("").Name), "webhook-config.yaml: it is a symbolic link"},
		{"a link in place of the signing key", func(d string) error { return errors.Join(os.Mkdir(d+"/tls", 0o700), link(ccoctl.SigningKeyName)(d)) },
			"signing-key.key: it is a symbolic link"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "out")
			check(t, os.Mkdir(dir, 0o700))
			if strings.Contains(tt.name, "Secret") || strings.Contains(tt.name, "manifests") || strings.Contains(tt.name, "issuer") {
				check(t, os.Mkdir(dir+"/manifests", 0o700))
			}
			check(t, tt.make(dir))
			before := tree(t, parent)
			err := ccoctl.CheckDir(dir)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if after := tree(t, parent); !slices.Equal(before, after) {
				t.Errorf("it made %v of %v", after, before)
			}
		})
	}
}

// An interrupted run leaves temporary files; the next one takes away those, and only those.
func TestOpenDirRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	check(t, os.Mkdir(dir+"/tls", 0o700))
	for _, name := range []string{".keypost-output-ABC.tmp", "tls/.keypost-output-DEF.tmp", ".keypost.yaml", "x.tmp"} {
		check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	_, err := ccoctl.OpenDir(dir, ccoctl.TLSDir)
	check(t, err)
	want := []string{"-rw------- .keypost.yaml ", "-rw------- x.tmp ", "drwx------ tls"}
	if got := tree(t, dir); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}

// What is there is replaced whole: no trailing bytes, no mode of an older file.
func TestWriteReplaces(t *testing.T) {
	dir := t.TempDir()
	d, err := ccoctl.OpenDir(dir, ccoctl.ManifestsDir)
	check(t, err)
	check(t, os.WriteFile(dir+"/manifests/a", []byte("long and older"), 0o666))
	old, err := os.Open(dir + "/manifests/a")
	check(t, err)
	check(t, d.Write(
		ccoctl.File{Name: "manifests/a", Data: []byte("new"), Mode: 0o600},
		ccoctl.File{Name: "b", Data: []byte("new"), Mode: 0o644},
	))
	want := []string{"-rw------- manifests/a new", "-rw-r--r-- b new", "drwx------ manifests"}
	if got := tree(t, dir); !slices.Equal(got, want) {
		t.Errorf("there is %q, want %q", got, want)
	}
	data := make([]byte, 20)
	if n, err := old.Read(data); err != nil || string(data[:n]) != "long and older" {
		t.Errorf("the old file was written into: %q (%v)", data[:n], err)
	}
	check(t, old.Close())
}

// If one of the files cannot be written, none is, and what was there is as it was.
func TestWriteIsAllOrNothing(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(dir string) error
		file string
		want string
	}{
		{"a link", func(d string) error { return os.Symlink("a", d+"/b") }, "b", "it is a symbolic link; remove it"},
		{"a dangling link", func(d string) error { return os.Symlink("/nowhere/at/all", d+"/b") }, "b", "it is a symbolic link; remove it"},
		{"a directory", func(d string) error { return os.Mkdir(d+"/b", 0o700) }, "b", "it is not a regular file"},
		{"a pipe", func(d string) error { return syscall.Mkfifo(d+"/b", 0o600) }, "b", "it is not a regular file"},
		{"a directory that was not asked for", func(d string) error { return os.Mkdir(d+"/tls", 0o700) }, "tls/b", "no file of the output directory"},
		{"a place outside", func(string) error { return nil }, "../b", "no file of the output directory"},
		{"a place outside by way of one inside", func(string) error { return nil }, "manifests/../../b", "no file of the output directory"},
		{"an absolute place", func(string) error { return nil }, "/tmp/b", "no file of the output directory"},
		{"no name", func(string) error { return nil }, "", "no file of the output directory"},
		{"a name that is too long", func(string) error { return nil }, strings.Repeat("b", 256), "the name of the file has 256 bytes, and file systems allow 255"},
		{"a hidden file", func(string) error { return nil }, "manifests/.b", "no file of the output directory"},
		{"a directory that has gone", func(d string) error {
			return os.Rename(d+"/manifests", d+"/other")
		}, "manifests/b", "no such file or directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			d, err := ccoctl.OpenDir(dir, ccoctl.ManifestsDir)
			check(t, err)
			check(t, os.WriteFile(dir+"/a", []byte("old"), 0o600))
			check(t, tt.make(dir))
			before := tree(t, dir)
			err = d.Write(ccoctl.File{Name: "a", Data: []byte("new"), Mode: 0o600}, ccoctl.File{Name: tt.file, Data: []byte("new"), Mode: 0o600})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "write ") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if after := tree(t, dir); !slices.Equal(before, after) {
				t.Errorf("it made %q of %q", after, before)
			}
		})
	}
}

// A link that takes the directory's place after it was opened leads nowhere outside.
func TestWriteStaysInside(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	d, err := ccoctl.OpenDir(dir, ccoctl.ManifestsDir)
	check(t, err)
	check(t, os.Remove(dir+"/manifests"))
	check(t, os.Symlink(outside, dir+"/manifests"))
	if err := d.Write(ccoctl.File{Name: "manifests/a", Mode: 0o600}); err == nil {
		t.Error("written")
	}
	if got := tree(t, outside); len(got) > 0 {
		t.Errorf("outside there is %v", got)
	}
}

// TestNamesInSecrets: a name is text to anyone who reads the manifest, and written as ccoctl writes it where that is so by itself.
func TestNamesInSecrets(t *testing.T) {
	for name, quoted := range map[string]bool{
		"null": true, "true": true, "false": true, "y": true, "n": true, "yes": true, "no": true, "on": true, "off": true, "0": true, "007": true, "1e3": true, "1e-3": true,
		"12": true, "1.5": true, "1.5e3": true, "0x1f": true, "0o17": true, "0b1": true, "2026-01-01": true,
		"prod-a": false, "cloud-credentials": false, "3scale": false, "1e3x": false, "e3": false, "nulls": false, "null-a": false, "0x1g": false, "1.2.3": false, "1-2": false,
		"2026-01": false, "on-call": false, "no.1": false, "nan": false, "inf": false,
	} {
		for _, f := range []ccoctl.File{
			ccoctl.Secret{Namespace: name, Name: name, RoleARN: "arn:aws:iam::123456789012:role/x"}.File(),
			ccoctl.GCPSecret{Namespace: name, Name: name}.File(),
			ccoctl.AzureSecret{Namespace: name, Name: name, ClientID: "c0000000-0000-4000-8000-000000000001"}.File(),
		} {
			var m struct{ Metadata map[string]any }
			if err := yaml.Unmarshal(f.Data, &m); err != nil || m.Metadata["name"] != name || m.Metadata["namespace"] != name {
				t.Errorf("%s is read as %#v, %v", name, m.Metadata, err)
			}
			if plain := strings.Contains(string(f.Data), "\n  name: "+name+"\n  namespace: "+name+"\n"); plain == quoted {
				t.Errorf("%s:\n%s", name, f.Data)
			}
		}
	}
}

func TestRoleNameIsCutAsCcoctlDoes(t *testing.T) {
	got := ccoctl.RoleName("mycluster", "openshift-cloud-credential-operator", "cloud-credential-operator-iam-ro-creds")
	if want := "mycluster-openshift-cloud-credential-operator-cloud-credential-o"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
