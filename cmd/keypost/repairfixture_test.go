package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// member is a JSON object.
type member = map[string]any

// spoils are what can be wrong with the two documents of an issuer, by the cause that keypost verify names. What it does to keys it
// does to the one with kid, which was published first.
func spoils() map[string]func(discovery member, key func() member, h http.Header) {
	set := func(name string, value any) func(member, func() member, http.Header) {
		return func(d member, _ func() member, _ http.Header) {
			if d["issuer"] != nil {
				d[name] = value
			}
		}
	}
	with := func(name string, value any) func(member, func() member, http.Header) {
		return func(_ member, key func() member, _ http.Header) { key()[name] = value }
	}
	header := func(name, value string) func(member, func() member, http.Header) {
		return func(_ member, _ func() member, h http.Header) { h.Set(name, value) }
	}
	return map[string]func(member, func() member, http.Header){
		"document-members": set("jwks_uri", nil),
		"jwks-uri-host":    set("jwks_uri", "https://localhost/prod-a/keys.json"),
		"key-changed":      with("kid", "other"),
		"key-form":         with("x", "AAAA"),
		"key-private":      with("d", "AAAA"),
		"cache-undeclared": header("X-Cache", "Hit from cloudfront"),
		"cache-stale":      header("Age", "200000"),
	}
}

// damaged is what stands in the place of one document, by the cause.
func damaged() map[string]struct {
	path   string
	status int
	body   string
} {
	const discovery, keys, alias = "/.well-known/openid-configuration", "/keys.json", "/openid/v1/jwks"
	return map[string]struct {
		path   string
		status int
		body   string
	}{
		"discovery-form": {discovery, http.StatusOK, "<html>"}, "jwks-form": {keys, http.StatusOK, "<html>"},
		"alias-differs": {alias, http.StatusNotFound, ""},
	}
}

// front is what people put before an issuer: it serves the files of an export in DIR (keypost export), and where it has none what
// the issuer of the command serve has, spoiled: front DIR CAUSE. It sets $FRONT, its address.
func (a accounts) front(ts *testscript.TestScript, args []string) {
	dir, behind := ts.MkAbs(args[0]), ts.Getenv("PORT")
	spoil, has := spoils()[args[1]]
	broken := damaged()[args[1]]
	strip, host := "", ""
	switch {
	case args[1] == "proxy-path":
		strip = "/prod-a"
	case args[1] == "proxy-host":
		host = "upstream"
	case has == (broken.path != ""):
		ts.Fatalf("how is %s made?", args[1])
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	ts.Defer(client.CloseIdleConnections)
	kid := "" // of the key that is spoiled
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := os.ReadFile(filepath.Join(dir, "oidc.example.com", filepath.FromSlash(path.Clean(r.URL.Path)))); err == nil {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "public, max-age=300")
			w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprint(len(body))))
			_, _ = w.Write(body)
			return
		}
		if broken.path != "" && strings.HasSuffix(r.URL.Path, broken.path) {
			w.Header().Set("Cache-Control", "public, max-age=300")
			w.WriteHeader(broken.status)
			_, _ = io.WriteString(w, broken.body)
			return
		}
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "https://127.0.0.1:"+behind+strings.TrimPrefix(r.URL.Path, strip), http.NoBody)
		ts.Check(err)
		req.Host = host
		resp, err := client.Do(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		var document member
		body, err := io.ReadAll(resp.Body)
		if err == nil && has && json.Unmarshal(body, &document) == nil {
			body = spoiled(document, spoil, &kid, resp.Header)
		}
		resp.Header.Del("Content-Length")
		resp.Header.Set("Server", "nginx")
		resp.Header.Set("ETag", fmt.Sprintf("%q", fmt.Sprint(len(body))))
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(body)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	ca, pair := newCertificate(a.t, "oidc.example.com", "localhost")
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	ts.Defer(server.Close)
	ts.Check(os.WriteFile(ts.MkAbs("front.pem"), ca, 0o600))
	ts.Setenv("FRONT", server.Listener.Addr().String())
}

// silent starts a server that accepts connections and says nothing, at $SILENT.
func silent(ts *testscript.TestScript, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv("SILENT", l.Addr().String())
}

// spoiled returns a document with what is wrong with it. kid is set by the first JWKS.
func spoiled(document member, spoil func(member, func() member, http.Header), kid *string, h http.Header) []byte {
	keys, _ := document["keys"].([]any)
	key := func() member {
		for _, k := range keys {
			k, _ := k.(member)
			if *kid == "" {
				*kid, _ = k["kid"].(string)
			}
			if k["kid"] == *kid {
				return k
			}
		}
		return member{}
	}
	spoil(document, key, h)
	for _, m := range []member{document, key()} {
		for name, value := range m {
			if value == nil {
				delete(m, name)
			}
		}
	}
	body, _ := json.Marshal(document)
	return body
}

// printedCommand matches a command of ours in a sentence: it goes to the end of the clause, outside quotes.
var printedCommand = regexp.MustCompile(`\bkeypost (?:'(?:[^']|'\\'')*'|[^'();&,:]|[,:][^ ])+`)

// repair finds a cause with keypost verify, executes the commands of its repair as they are printed, and finds it no more:
// repair CAUSE [PLACEHOLDER=VALUE…] -- ARG… for verify. A repair that is itself a look is the second one.
func repair(ts *testscript.TestScript, neg bool, args []string) {
	split := slices.Index(args, "--")
	if neg || split < 1 {
		ts.Fatalf("usage: repair CAUSE [PLACEHOLDER=VALUE…] -- ARG…")
	}
	cause, verify := args[0], append([]string{"verify"}, args[split+1:]...)
	found := regexp.MustCompile(`(?m)^(?:fail|warn) +` + cause + ` `)
	_ = ts.Exec("keypost", verify...)
	out := ts.ReadFile("stdout")
	at := found.FindStringIndex(out)
	if at == nil {
		ts.Fatalf("%s was not found", cause)
	}
	_, rest, _ := strings.Cut(out[at[0]:], "repair: ")
	line, _, _ := strings.Cut(rest, "\n")
	printed := printedCommand.FindAllString(line, -1)
	if len(printed) == 0 {
		ts.Fatalf("no command to execute in %q", line)
	}
	looked := false
	for _, command := range printed {
		for _, given := range args[1:split] {
			name, value, _ := strings.Cut(given, "=")
			command = regexp.MustCompile(`(^|[ /])`+regexp.QuoteMeta(name)+`($|[ /])`).ReplaceAllString(command, "${1}"+value+"${2}")
		}
		looked = strings.HasPrefix(command, "keypost verify ")
		if err := ts.Exec("sh", "-c", command); err != nil && !looked {
			ts.Fatalf("%s: %v", command, err)
		}
	}
	if !looked {
		_ = ts.Exec("keypost", verify...)
	}
	if out := ts.ReadFile("stdout"); found.MatchString(out) || !strings.Contains(out, "ok ") {
		ts.Fatalf("after %q there is still %s", printed, cause)
	}
}

// hint executes a command that the last one printed for people, as it is printed, and expects an exit code of it:
// hint CODE BEGINNING [PLACEHOLDER=VALUE…], where BEGINNING are its first words.
func hint(ts *testscript.TestScript, args []string) {
	form := regexp.MustCompile(`\bmkdir -p (?:'(?:[^']|'\\'')*'|[^'();&,: ])+|` + printedCommand.String())
	var printed []string
	for line := range strings.Lines(ts.ReadFile("stderr")) {
		printed = append(printed, form.FindAllString(strings.TrimSuffix(line, "\n"), -1)...)
	}
	i := slices.IndexFunc(printed, func(line string) bool { return strings.HasPrefix(line, args[1]) })
	if i < 0 {
		ts.Fatalf("%q is not printed, only %q", args[1], printed)
	}
	command := strings.TrimRight(printed[i], " ")
	for _, given := range args[2:] {
		name, value, _ := strings.Cut(given, "=")
		form := regexp.MustCompile(`(^| )` + regexp.QuoteMeta(name) + `($| )`)
		if !form.MatchString(command) {
			ts.Fatalf("%s has no %s", command, name)
		}
		command = form.ReplaceAllString(command, "${1}"+value+"${2}")
	}
	if left := regexp.MustCompile(`(^| )[A-Z]+(:[A-Z]+)?($| )`).FindString(command); left != "" {
		ts.Fatalf("%s has the placeholder%s", command, left)
	}
	exits(ts, []string{args[0], "sh", "-c", command})
}
