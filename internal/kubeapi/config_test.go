package kubeapi

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// Anyone who writes a kubeconfig that Inline takes reaches no program and no file of this machine.
func TestInline(t *testing.T) {
	const block = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"
	ca := base64.StdEncoding.EncodeToString([]byte("SECRET\n" + block + "SECRET"))
	good := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: %s}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`, ca)
	for name, tt := range map[string]struct{ old, now, want string }{
		"good":                {"", "", ""},
		"others do not count": {"users: [", `users: [{name: other, user: {tokenFile: /x}}, `, ""},
		"a program":           {"token: t", "exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, interactiveMode: Never}", "would run a program"},
		"a provider":          {"token: t", "auth-provider: {name: oidc}", "would run a program"},
		"a token's file":      {"token: t", "tokenFile: /var/run/secrets/token", "names a file (tokenFile)"},
		"a token and a file":  {"token: t", "token: t, tokenFile: /var/run/secrets/token", "names a file (tokenFile)"},
		"a certificate":       {"token: t", "client-certificate: /x, client-key-data: YQ==", "names a file (client-certificate"},
		"a key":               {"token: t", "client-certificate-data: YQ==, client-key: /x", "names a file (client-certificate"},
		"a CA's file":         {"certificate-authority-data: " + ca, "certificate-authority: /x", "names a file (certificate-authority)"},
		"no CA":               {", certificate-authority-data: " + ca, "", "any public CA"},
		"no certificate":      {ca, "U0VDUkVU", "any public CA"},
		"no verification":     {"certificate-authority-data: " + ca, "insecure-skip-tls-verify: true", "anybody could answer"},
		"no TLS":              {"https://", "http://", "not an https URL"},
		"a proxy":             {"certificate-authority-data", "proxy-url: http://SECRET:1, certificate-authority-data", "it has proxy-url"},
		"a password":          {"https://", "https://adm:SECRET@", "has a user or a password"},
		"a user":              {"https://", "https://SECRET@", "has a user or a password"},
		"no URL":              {"https://", "https://adm:SECRET%@", "not an https URL"},
		"no context":          {"current-context: c", "current-context: d", "names no context"},
		"no user":             {"name: u, user", "name: v, user", "a user that it does not have"},
		"no kubeconfig":       {"apiVersion: v1", "SECRET: [", "it is not a kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Inline([]byte(strings.Replace(good, tt.old, tt.now, 1)))
			switch {
			case tt.want == "" && (err != nil || c.BearerToken != "t" || c.BearerTokenFile != "" || c.ExecProvider != nil || c.CAFile != "" || string(c.CAData) != block):
				t.Errorf("%+v, %v", c, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "SECRET")):
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
