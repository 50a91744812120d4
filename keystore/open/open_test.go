package open

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/kubestore"
	"github.com/keypost/keypost/keystore/s3store"
)

func TestParse(t *testing.T) {
	for raw, want := range map[string]URL{
		"file:///srv/keys%20ets": {scheme: "file", Dir: "/srv/keys ets"},
		"file://./keysets":       {scheme: "file", Dir: "./keysets"},
		"s3://bucket":            {scheme: "s3", s3: s3store.Options{Bucket: "bucket"}},
		"s3://bucket/a/b/?region=eu-west-1&profile=p&account=123456789012&endpoint=https://s3.example.com": {scheme: "s3", s3: s3store.Options{
			Bucket: "bucket", Prefix: "a/b", Region: "eu-west-1", Profile: "p", Account: "123456789012", Endpoint: "https://s3.example.com",
		}},
		"kubernetes://keypost":                                  {scheme: "kubernetes", namespace: "keypost"},
		"kubernetes://keypost/?kubeconfig=/etc/kc&context=c%2F": {scheme: "kubernetes", namespace: "keypost", kubernetes: kubestore.Options{Kubeconfig: "/etc/kc", Context: "c/"}},
	} {
		if got, err := Parse(raw); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", raw, got, err, want)
		}
	}
}

func TestParseS3Refuses(t *testing.T) {
	for raw, part := range map[string]string{
		"":                                 "not of the form",
		"s3://user:hunter2@keysets":        "not of the form",
		"s3://keysets#x":                   "not of the form",
		"s3://keysets?region=%zz":          "cannot be read",
		"s3:///a":                          "not the name of an S3 bucket",
		"s3://Keysets":                     "not the name of an S3 bucket",
		"s3://keysets/../a":                "is not usable",
		"s3://keysets/a//b":                "is not usable",
		"s3://keysets/$%7Baws:username%7D": "is not usable",
		"s3://keysets/.hidden":             "is not usable",
		"s3://keysets/" + strings.Repeat("a", 513):           "is not usable",
		"s3://keysets?regoin=x":                              `no parameter "regoin"`,
		"s3://keysets?region=a&region=b":                     "needs one value",
		"s3://keysets?account=1234":                          "12 digits",
		"s3://keysets?endpoint=s3.example":                   "does not have the form https://HOST",
		"s3://keysets?endpoint=http://s3.example":            "not https",
		"s3://keysets?endpoint=http://127.0.0.1.example":     "not https",
		"s3://keysets?endpoint=https://user:hunter2@s3.test": "does not have the form https://HOST",
	} {
		_, err := parseS3(raw)
		if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("parseS3(%s) = %v, want an error with %q and no password", raw, err, part)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for raw, want := range map[string]struct {
		part, instead string
		form          bool
	}{
		"":                             {"no store was given", "", true},
		"file:///a\nb":                 {"cannot be seen", "", true},
		"/srv/keysets":                 {"it is a path, not a URL", "file:///srv/keysets", true},
		"keysets":                      {"it is a path, not a URL", "file://./keysets", true},
		"file:/srv/keysets":            {"after the scheme comes ://", "file:///srv/keysets", true},
		"file://srv":                   {"after file:// comes /, ./ or ../", "file://./srv", true},
		"file:/user:hunter2@h":         {`store "file:…": after the scheme`, "", true},
		"file://user:hunter2@h":        {`store "file:…": after file://`, "", true},
		"file:///srv?x=1":              {"takes no parameters", "", false},
		"file:///%zz":                  {"its percent-encoding is damaged", "", false},
		"ftp://user:hunter2@h":         {`store "ftp://": its scheme is unknown`, "", true},
		"user:hunter2@h":               {`store "user:…"`, "", true},
		"s3://user:hunter2@b":          {"not of the form s3://", "", false},
		"kubernetes://u:hunter2@ns":    {"not of the form kubernetes://", "", false},
		"kubernetes://ns?x=hunter":     {`kubernetes:// URLs have no parameter "x"; they have kubeconfig and context`, "", false},
		"kubernetes://ns?context=":     {"parameter context of the key store's URL needs one value", "", false},
		"kubernetes://ns?context=%zz1": {"a query that cannot be read", "", false},
	} {
		_, err := Parse(raw)
		wrong, is := errors.AsType[*URLError](err)
		if !is || !strings.Contains(err.Error(), want.part) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Parse(%q) = %v, want a URLError with %q and no password", raw, err, want.part)
			continue
		}
		if wrong.Instead != want.instead || wrong.Form != want.form {
			t.Errorf("Parse(%q): instead %q, form %v; want %q, %v", raw, wrong.Instead, wrong.Form, want.instead, want.form)
		}
	}
}

func TestMissingDirectory(t *testing.T) {
	dir := t.TempDir()
	for path, parent := range map[string]string{
		filepath.Join(dir, "a"):      "",
		filepath.Join(dir, "a", "b"): filepath.Join(dir, "a"),
	} {
		u, err := Parse(fileURL(path))
		if err != nil {
			t.Fatal(err)
		}
		b, err := u.Backend(t.Context())
		missing, is := errors.AsType[*MissingDirError](err)
		if b != nil || !is || missing.Dir != path || missing.Parent != parent || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, %v", path, b, err)
		}
	}
	u, err := Parse(fileURL(filepath.Join(dir, "new")))
	if err != nil {
		t.Fatal(err)
	}
	b, err := u.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if st, is := b.(*filestore.Backend); !is || st.Dir() != filepath.Join(dir, "new") {
		t.Errorf("Create = %v", b)
	}
}

// What the notes of a mirror call a store is another text for every other store, wherever it is opened, and has no credentials.
func TestPlace(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	dir := t.TempDir()
	config := filepath.Join(dir, "config")
	if err := os.WriteFile(config, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"clusters": [{"name": "a", "cluster": {"server": "https://a.example:6443/"}}, {"name": "b", "cluster": {"server": "https://user:hunter2@b.example/p"}}],
		"contexts": [{"name": "a", "context": {"cluster": "a", "user": "u"}}, {"name": "b", "context": {"cluster": "b", "user": "u"}}],
		"users": [{"name": "u", "user": {"token": "hunter2"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, wd := range []string{"here", "there"} {
		if err := os.MkdirAll(filepath.Join(dir, wd, "keysets"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ wd, url, want string }{
		{"here", "file://./keysets", "file://" + dir + "/here/keysets"},
		{"here", "file://../here/./keysets/", "file://" + dir + "/here/keysets"},
		{"there", "file://./keysets", "file://" + dir + "/there/keysets"},
		{"here", "kubernetes://keypost?kubeconfig=" + config, "kubernetes://keypost?server=https://a.example:6443"},
		{"here", "kubernetes://keypost?kubeconfig=" + config + "&context=b", "kubernetes://keypost?server=https://b.example/p"},
		{"here", "kubernetes://other?kubeconfig=" + config, "kubernetes://other?server=https://a.example:6443"},
		{"here", "s3://keysets/a?region=eu-west-1&account=123456789012", "s3://keysets/a/?region=eu-west-1"},
		{"here", "s3://keysets?region=eu-west-1&endpoint=https://s3.example.com/", "s3://keysets/?region=eu-west-1&endpoint=https://s3.example.com"},
		{"here", "s3://keysets?endpoint=http://127.0.0.1:7070&region=x", "s3://keysets/?region=x&endpoint=http://127.0.0.1:7070"},
	} {
		t.Chdir(filepath.Join(dir, c.wd))
		u, err := Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		b, err := u.Backend(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := Place(b); got != c.want {
			t.Errorf("%s: Place = %s, want %s", c.url, got, c.want)
		}
	}
}
