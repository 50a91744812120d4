package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/keypost/keypost/internal/settings"
)

const smallest = `
dir: /var/lib/keypost
issuerURLs: ["https://oidc.example.com/{name}"]
listen: {tls: {files: [{cert: tls.crt, key: tls.key}]}}
`

func checkReadsBack(t *testing.T, c config) {
	t.Helper()
	var printed bytes.Buffer
	if err := printConfig(&printed, c); err != nil {
		t.Fatal(err)
	}
	back, err := parseConfig(printed.Bytes())
	if err != nil {
		t.Fatalf("%v in what was printed:\n%s", err, &printed)
	}
	if !reflect.DeepEqual(normal(back), normal(c)) {
		t.Errorf("printed %+v\nreads as %+v", c, back)
	}
}

// normal forgets the difference between nothing and an empty list.
func normal(c config) config {
	if len(c.HostAliases) == 0 {
		c.HostAliases = nil
	}
	if len(c.Listen.TLS.Files) == 0 {
		c.Listen.TLS.Files = nil
	}
	return c
}

func TestConfigurationErrors(t *testing.T) {
	with := func(line string) string {
		text := smallest
		if strings.Contains(line, "issuerURLs:") { // in place of its own
			text = strings.Replace(text, `issuerURLs: ["https://oidc.example.com/{name}"]`, "", 1)
		}
		return text + line + "\n"
	}
	listen := func(rest string) string {
		return strings.Replace(smallest, "listen: {", "listen: {"+rest+", ", 1)
	}
	acme := func(settings string) string {
		return strings.Replace(smallest, "tls: {files: [{cert: tls.crt, key: tls.key}]}", "tls: {mode: acme, acme: {acceptTerms: true, "+settings+"}}", 1)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"empty":                   {"", "dir is not set"},
		"no dir":                  {strings.Replace(smallest, "dir:", "# dir:", 1), "dir is not set"},
		"unknown key":             {with("adress: x"), `unknown field "adress"`},
		"unknown nested key":      {listen("adress: x"), `unknown field "listen.adress"`},
		"wrong case":              {with("Poll: 10s"), `unknown field "Poll"`},
		"repeated key":            {with("dir: /other"), `"dir" already set`},
		"not YAML":                {"{", "did not find expected"},
		"a list":                  {"- a", "the file is a list; it must be a mapping of settings"},
		"two documents":           {smallest + "---\npoll: 1s\n", "more than one YAML document"},
		"too large":               {with("#" + strings.Repeat("x", settings.Max)), "larger than"},
		"a port in a pattern":     {strings.Replace(smallest, "example.com", "example.com:8443", 1), "port"},
		"no TLS files":            {strings.Replace(smallest, "{cert: tls.crt, key: tls.key}", "", 1), "listen.tls.files is empty"},
		"no key":                  {strings.Replace(smallest, ", key: tls.key", "", 1), "listen.tls.files[0] needs both cert and key"},
		"TLS off and files":       {strings.Replace(smallest, "{files", "{mode: off, files", 1), "drop one of them"},
		"unknown TLS mode":        {strings.Replace(smallest, "{files", "{mode: auto, files", 1), `listen.tls.mode is "auto"`},
		"ACME and files":          {strings.Replace(smallest, "{files", "{mode: acme, files", 1), "although listen.tls.mode is acme"},
		"ACME and nothing":        {strings.Replace(smallest, "tls: {files: [{cert: tls.crt, key: tls.key}]}", `tls: {mode: acme}`, 1), "listen.tls.acme is empty"},
		"ACME beside files":       {strings.Replace(smallest, "{files", "{acme: {cache: c, acceptTerms: true}, files", 1), "set the mode to acme"},
		"empty shield":            {listen("shield: {}"), "listen.shield is empty"},
		"shield of a proxy":       {strings.Replace(smallest, "tls: {files: [{cert: tls.crt, key: tls.key}]}", `tls: {mode: off}, shield: {clientCAFile: ca.pem}`, 1), "has to ask for the certificate"},
		"ACME without terms":      {strings.Replace(smallest, "tls: {files: [{cert: tls.crt, key: tls.key}]}", `tls: {mode: acme, acme: {cache: c}}`, 1), "acceptTerms is not true"},
		"ACME without cache":      {strings.Replace(smallest, "tls: {files: [{cert: tls.crt, key: tls.key}]}", `tls: {mode: acme, acme: {acceptTerms: true}}`, 1), "cache is not set"},
		"ACME with two addresses": {strings.Replace(smallest, "tls: {files: [{cert: tls.crt, key: tls.key}]}", `tls: {mode: acme, acme: {cache: c, acceptTerms: true, email: "a@b.c, d@e.f"}}`, 1), "write one address"},
		"ACME without a port":     {strings.Replace(smallest, "tls: {files: [{cert: tls.crt, key: tls.key}]}", `tls: {mode: acme, acme: {cache: c, acceptTerms: true, httpAddress: localhost}}`, 1), "acme.httpAddress"},
		"address without port":    {listen("address: localhost"), "write host:port"},
		"port too large":          {listen(`address: ":65536"`), "write host:port"},
		"probes without port":     {with(`admin: {probes: "127.0.0.1"}`), "admin.probes"},
		"admin without port":      {with(`admin: {address: "127.0.0.1"}`), "admin.address"},
		"no connections":          {listen("maxConnections: -1"), "listen.maxConnections is -1"},
		"no drain timeout":        {listen("drainTimeout: 0s"), "listen.drainTimeout is 0s"},
		"negative drain":          {listen("drainDelay: -1s"), "not a duration"},
		"duration without unit":   {with("poll: 10"), "a duration is a string with its unit"},
		"short poll":              {with("poll: 999ms"), "poll is 999ms; it must be from 1s to 15s"},
		"long poll":               {with("poll: 15001ms"), "poll is 15.001s; it must be from 1s to 15s, which the gates of keys count with"},
		"maxAge too short":        {with("policy: {maxAge: 59s}"), "maxAge is 59s"},
		"log level":               {with("log: {level: fatal}"), "log.level"},
		"log format":              {with("log: {format: xml}"), "log.format"},
		"alias with port":         {with(`hostAliases: {"a.example.com:443": b.example.com}`), "host names in lower case"},
		"alias of an alias":       {with("hostAliases: {a.example.com: b.example.com, b.example.com: c.example.com}"), "an alias itself"},
		"alias to itself":         {with("hostAliases: {a.example.com: a.example.com}"), "an alias itself"},
		"alias hides an issuer":   {with(`hostAliases: {b.example.com: oidc.example.com}` + "\n" + `issuerURLs: ["https://oidc.example.com/{name}", "x=https://b.example.com/y"]`), "would hide the issuer there"},
		"alias hides any name":    {with(`hostAliases: {origin.oidc.example.com: oidc.example.com}` + "\n" + `issuerURLs: ["https://oidc.example.com/{name}", "https://{name}.oidc.example.com"]`), "would hide the issuer there"},
		"alias of no issuer":      {with("hostAliases: {a.example.com: b.example.com}"), "no pattern in issuerURLs has"},
		"allowEmpty is a word":    {with("allowEmpty: maybe"), "allowEmpty is text; it must be true or false, without quotes"},
		"cache is dir":            {acme(`cache: /var/lib/keypost/`), "listen.tls.acme.cache (/var/lib/keypost/) is inside dir (/var/lib/keypost)"},
		"cache in dir":            {acme(`cache: /var/lib/keypost/x/../tls/cache`), "is inside dir"},
		"terms in quotes":         {strings.Replace(smallest, "tls: {files: [{cert: tls.crt, key: tls.key}]}", `tls: {mode: acme, acme: {cache: c, acceptTerms: "true"}}`, 1), "listen.tls.acme.acceptTerms is text; it must be true or false, without quotes"},
		"one secret, no list":     {listen("shield: {header: X-Secret, secretFiles: /etc/keypost/shield}"), "listen.shield.secretFiles is text; it must be a list, such as [one]"},
		"a pair that is a file":   {strings.Replace(smallest, "{cert: tls.crt, key: tls.key}", "tls.pem", 1), "listen.tls.files is text; it must be a mapping of settings"},
		"a mode for a section":    {strings.Replace(smallest, "tls: {files: [{cert: tls.crt, key: tls.key}]}", "tls: acme", 1), "listen.tls is text; it must be a mapping of settings"},
		"half a connection":       {listen("maxConnections: 1.5"), "listen.maxConnections is a number; it must be a whole number, without quotes"},
		"control characters":      {"dir: \x01", "control characters"},
		"an anchor that explodes": {"a: &a [x,x]\nb: [*a,*a]\n" + smallest, "it has a YAML anchor"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseConfig([]byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "json:") || strings.Contains(err.Error(), "main.") {
				t.Errorf("error %v, want one with %q and no words of Go's", err, tc.want)
			}
		})
	}
}

func TestReadConfigNamesTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keypostd.yaml")
	if _, err := readConfig(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(file, []byte("x: 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readConfig(file); err == nil || !strings.Contains(err.Error(), "configuration "+file) {
		t.Errorf("bad file: %v", err)
	}
	if _, err := readConfig("/dev/zero"); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("endless file: %v", err)
	}
}

func TestDevelopmentIsLoopbackOnly(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:8443": true, "[::1]:8443": true, "127.1.2.3:1": true,
		"0.0.0.0:8443": false, ":8443": false, "localhost:8443": false, "[::]:8443": false, "192.168.0.1:8443": false,
		"127.0.0.1": false, "127.0.0.1:": false, "127.0.0.1:0": false, "127.0.0.1:x": false, "": false,
	} {
		for _, at := range [][2]string{{address, "127.0.0.1:9090"}, {"127.0.0.1:8443", address}} {
			if _, err := devConfig(t.TempDir(), at[0], at[1]); (err == nil) != ok {
				t.Errorf("%q: error %v, want one: %v", at, err, !ok)
			}
		}
	}
}

// FuzzConfig: no panic, no configuration that check would refuse, and what is taken prints and reads back the same.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(smallest))
	f.Add([]byte("dir: a\nissuerURLs: ['a=https://a.b']\nlisten: {tls: {mode: off}}\nhostAliases: {b: a.b}\n"))
	f.Add([]byte("dir: !!binary aGk=\nissuerURLs: [https://{name}.b]\nlisten: {tls: {mode: off}, drainDelay: 0.5s}\npoll: 1h1ns"))
	f.Add([]byte("---\n{}\n..."))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("{\"dir\":\"\\u0000\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseConfig(data)
		if err != nil {
			if len(err.Error()) > 4*len(data)+2000 {
				t.Fatalf("an error of %d bytes for %d", len(err.Error()), len(data))
			}
			return
		}
		if err := c.check(); err != nil || c.Dir == "" || len(c.IssuerURLs) == 0 {
			t.Fatalf("taken although %v: %+v", err, c)
		}
		checkReadsBack(t, c)
	})
}

// An alias that is not an issuer's host and leads to one is what there is for a CDN, whatever the pattern looks like.
func TestAliasesForACDN(t *testing.T) {
	for _, patterns := range []string{`"https://oidc.example.com/{name}"`, `"a=https://oidc.example.com"`, `"https://{name}.example.com"`, `"https://{name}.example.com/x"`} {
		text := strings.Replace(smallest, `"https://oidc.example.com/{name}"`, patterns, 1) + "hostAliases: {origin.example.net: oidc.example.com}\n"
		if _, err := parseConfig([]byte(text)); err != nil {
			t.Errorf("%s: %v", patterns, err)
		}
	}
}
