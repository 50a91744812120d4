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
			check(t, ccoctl.Write(out, tt.file))
			path := filepath.Join(out, filepath.FromSlash(tt.path))
			if line := tt.file.Line(out); !strings.HasSuffix(line, path) {
				t.Errorf("it is told as %q, want %s", line, path)
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

func TestMakeDirMakesOneLevel(t *testing.T) {
	parent := t.TempDir()
	for range 2 { // the second time everything is there
		check(t, ccoctl.MakeDir(filepath.Join(parent, "out"), ccoctl.ManifestsDir, ccoctl.TLSDir))
	}
	want := []string{"drwx------ out", "drwx------ out/manifests", "drwx------ out/tls"}
	if got := tree(t, parent); !slices.Equal(got, want) {
		t.Errorf("made %v, want %v", got, want)
	}
	t.Chdir(parent)
	for dir, want := range map[string]string{"": " 03-keys.json", "out/": " out/03-keys.json"} {
		check(t, ccoctl.MakeDir(dir))
		if line := ccoctl.JWKSFile(nil).Line(dir); !strings.HasSuffix(line, want) {
			t.Errorf("%q does not end in %s: what is given relative stays relative", line, want)
		}
	}
}

func TestMakeDirRefuses(t *testing.T) {
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
			for _, err := range []error{ccoctl.MakeDir(filepath.Join(dir, tt.path), ccoctl.ManifestsDir), ccoctl.CheckDir(filepath.Join(dir, tt.path))} {
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

// CheckDir changes nothing, and takes what can be made.
func TestCheckDir(t *testing.T) {
	for name, make := range map[string]func(dir string) error{
		"nothing":                 os.RemoveAll,
		"an empty directory":      func(string) error { return nil },
		"a link to a directory":   func(d string) error { return errors.Join(os.Remove(d), os.Symlink(t.TempDir(), d)) },
		"a directory with a link": func(d string) error { return os.Symlink("elsewhere", d+"/99_mine.yaml") },
	} {
		parent := t.TempDir()
		dir := filepath.Join(parent, "out")
		check(t, os.Mkdir(dir, 0o700))
		check(t, make(dir))
		before := tree(t, parent)
		if err := ccoctl.CheckDir(dir); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if after := tree(t, parent); !slices.Equal(before, after) {
			t.Errorf("%s: it made %v of %v", name, after, before)
		}
	}
}

// A key that another user put there is not taken, and no key is put where every user can replace it.
func TestDirectoriesOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	const other = 65534
	for _, tt := range []struct {
		name string
		make func(d string) error
		sudo string
		want string // of the error; empty if the directory is taken
	}{
		{"root's", func(string) error { return nil }, "", ""},
		{"a key of another user", func(d string) error { return os.Chown(d+"/"+ccoctl.PrivateKeyName, other, other) }, "", ccoctl.PrivateKeyName + " has the owner 65534"},
		{"the caller's, under sudo", func(d string) error { return os.Chown(d+"/"+ccoctl.PrivateKeyName, other, other) }, "65534", ""},
		{"an installed key of another user", func(d string) error {
			return errors.Join(os.WriteFile(d+"/"+ccoctl.SigningKeyName, nil, 0o600), os.Chown(d+"/"+ccoctl.SigningKeyName, other, other))
		}, "", ccoctl.SigningKeyName + " has the owner 65534"},
		{"a link of another user", func(d string) error {
			return errors.Join(os.Rename(d+"/"+ccoctl.PrivateKeyName, d+"/mine"), os.Symlink("mine", d+"/"+ccoctl.PrivateKeyName), os.Lchown(d+"/"+ccoctl.PrivateKeyName, other, other))
		}, "", "has the owner 65534"},
		{"a link to a key of another user", func(d string) error {
			return errors.Join(os.Rename(d+"/"+ccoctl.PrivateKeyName, d+"/x"), os.Symlink("x", d+"/"+ccoctl.PrivateKeyName), os.Chown(d+"/x", other, other))
		}, "", "has the owner 65534"},
		{"a link of root's", func(d string) error {
			return errors.Join(os.Rename(d+"/"+ccoctl.PrivateKeyName, d+"/mine"), os.Symlink("mine", d+"/"+ccoctl.PrivateKeyName))
		}, "", ""},
		{"a key that everybody may write", func(d string) error { return os.Chmod(d+"/"+ccoctl.PrivateKeyName, 0o666) }, "", "the mode 0666"},
		{"everybody's", func(d string) error { return os.Chmod(d, 0o777) }, "", "the mode 0777"},
		{"tls for everybody", func(d string) error { return os.Chmod(d+"/tls", 0o777) }, "", "the mode 0777"},
		{"with a sticky bit", func(d string) error { return os.Chmod(d, 0o777|fs.ModeSticky) }, "", ""},
		{"of a user who mounts it", func(d string) error { return os.Chown(d, other, other) }, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("SUDO_UID", tt.sudo)
			dir := filepath.Join(t.TempDir(), "out")
			check(t, ccoctl.MakeDir(dir, ccoctl.ManifestsDir, ccoctl.TLSDir))
			check(t, os.WriteFile(filepath.Join(dir, ccoctl.PrivateKeyName), []byte("key"), 0o600))
			check(t, tt.make(dir))
			for _, err := range []error{ccoctl.CheckDir(dir), ccoctl.MakeDir(dir, ccoctl.TLSDir)} {
				if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "output directory "+dir+": ")) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
			}
		})
	}
}

// An interrupted run leaves temporary files; the next one takes away those, and only those.
func TestMakeDirRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	check(t, os.Mkdir(dir+"/tls", 0o700))
	for _, name := range []string{".keypost-output-ABC.tmp", "tls/.keypost-output-DEF.tmp", ".keypost.yaml", "x.tmp"} {
		check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	check(t, ccoctl.MakeDir(dir, ccoctl.TLSDir))
	want := []string{"-rw------- .keypost.yaml ", "-rw------- x.tmp ", "drwx------ tls"}
	if got := tree(t, dir); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}

// What is there is replaced whole: no trailing bytes, no mode of an older file.
func TestWriteReplaces(t *testing.T) {
	dir := t.TempDir()
	check(t, ccoctl.MakeDir(dir, ccoctl.ManifestsDir))
	check(t, os.WriteFile(dir+"/manifests/a", []byte("long and older"), 0o666))
	old, err := os.Open(dir + "/manifests/a")
	check(t, err)
	check(t, ccoctl.Write(dir,
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
		{"a link", func(d string) error { return os.Symlink("a", d+"/b") }, "b", "it is not a regular file"},
		{"a dangling link", func(d string) error { return os.Symlink("/nowhere/at/all", d+"/b") }, "b", "it is not a regular file"},
		{"a directory", func(d string) error { return os.Mkdir(d+"/b", 0o700) }, "b", "it is not a regular file"},
		{"a pipe", func(d string) error { return syscall.Mkfifo(d+"/b", 0o600) }, "b", "it is not a regular file"},
		{"a place outside", func(string) error { return nil }, "../b", "path escapes from parent"},
		{"a place outside by way of one inside", func(string) error { return nil }, "manifests/../../b", "path escapes from parent"},
		{"a name that is too long", func(string) error { return nil }, strings.Repeat("b", 256), "file name too long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			check(t, ccoctl.MakeDir(dir, ccoctl.ManifestsDir))
			check(t, os.WriteFile(dir+"/a", []byte("old"), 0o600))
			check(t, tt.make(dir))
			before := tree(t, dir)
			err := ccoctl.Write(dir, ccoctl.File{Name: "a", Data: []byte("new"), Mode: 0o600}, ccoctl.File{Name: tt.file, Data: []byte("new"), Mode: 0o600})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "write ") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if after := tree(t, dir); !slices.Equal(before, after) {
				t.Errorf("it made %q of %q", after, before)
			}
		})
	}
}

// A link that takes a directory's place leads nowhere outside.
func TestWriteStaysInside(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	check(t, os.Symlink(outside, dir+"/manifests"))
	if err := ccoctl.Write(dir, ccoctl.File{Name: "manifests/a", Mode: 0o600}); err == nil {
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
