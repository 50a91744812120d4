package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/externaljwt/apis/v1"

	"github.com/keypost/keypost/internal/signingkey"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// newConfig makes a key set whose active key is held, and returns the configuration file.
func newConfig(t *testing.T) (file string, kid keystore.KeyID) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"keysets", "keys"} {
		must(0, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	key := must(signingkey.Generate(signingkey.P256))
	must(0, key.Install(filepath.Join(dir, "keys", "sa.key")))
	set := must(keystore.New(keystore.Change{At: time.Now(), By: "test"}, keystore.Spec{
		Name: "prod-a", Issuers: []keystore.IssuerURL{must(keystore.ParseIssuerURL("https://oidc.example.com/prod-a", false))}, Keys: []keystore.VerificationKey{key.Public()},
	}))
	must(0, keystore.Create(t.Context(), keystore.NewStore(must(filestore.Open(filepath.Join(dir, "keysets")))), set))
	file = filepath.Join(dir, "signer.yaml")
	text := fmt.Sprintf("dir: %[1]s/keysets\nkeySet: prod-a\nkeys: %[1]s/keys\nsocket: {path: %[1]s/run/s.sock, uids: [%d]}\nadmin: {address: \"127.0.0.1:0\"}\n", dir, os.Getuid())
	must(0, os.WriteFile(file, []byte(text), 0o600))
	return file, key.Public().ID()
}

func TestCommands(t *testing.T) {
	t.Parallel()
	file, kid := newConfig(t)
	broken := filepath.Join(t.TempDir(), "signer.yaml")
	must(0, os.WriteFile(broken, []byte("dir: x\nsocket: {path: s, uids: []}\n"), 0o600))
	foreign, missing := newConfig(t)
	must(0, os.Remove(filepath.Join(filepath.Dir(foreign), "keys", "sa.key")))
	ofOthers := map[string]string{} // by what others may write to
	for path, mode := range map[string]os.FileMode{"keysets": 0o775, "keysets/prod-a.yaml": 0o666} {
		f, _ := newConfig(t)
		must(0, os.Chmod(filepath.Join(filepath.Dir(f), path), mode))
		ofOthers[path] = f
	}
	for _, tt := range []struct {
		args      string
		code      int
		out, told string
	}{
		{"--version", 0, "keypost-signer ", ""},
		{"--help", 0, "keypost-signer keys --config FILE", ""},
		{"", 2, "", "give --config FILE"},
		{"--config x y", 2, "", `unexpected argument "y"`},
		{"--config x --public y", 2, "", "goes with the command keys"},
		{"--config /nowhere", 1, "", "read configuration: open /nowhere"},
		{"--config " + broken, 1, "", "keys is not set"},
		{"--config " + broken, 1, "", "keySet is not set"},
		{"--config " + broken, 1, "", "socket.path is not absolute"},
		{"--config " + broken, 1, "", "socket.uids is empty"},
		{"--check --config " + file, 0, "# key " + string(kid) + " would sign\n", ""},
		{"--check --config " + foreign, 1, "KID", "no active key of the key set can sign here: " + string(missing) + " is not held here"},
		{"--check --config " + ofOthers["keysets"], 1, "", "keysets (mode 0775), and would decide which key signs; run chmod 755 on it"},
		{"--check --config " + ofOthers["keysets/prod-a.yaml"], 1, "", "prod-a.yaml (mode 0666), and would decide which key signs; run chmod 644 on it"},
		{"keys --config " + file, 0, string(kid) + "  ES256  sa.key\n", ""},
		{"keys --config " + file + " --public=" + string(kid), 0, "-----BEGIN PUBLIC KEY-----", ""},
		{"keys --config " + file + " --public other", 1, "", "no key other is held"},
	} {
		var out bytes.Buffer
		code, err := run(t.Context(), strings.Fields(tt.args), &out, io.Discard)
		if code != tt.code || !strings.Contains(out.String(), tt.out) || !strings.Contains(fmt.Sprint(err), tt.told) {
			t.Errorf("%s: %d, %v\n%s", tt.args, code, err, &out)
		}
		if strings.Contains(out.String(), "PRIVATE") {
			t.Errorf("%s prints a private key", tt.args)
		}
	}
}

// The whole program: it signs on its socket, says so on the admin listener, and ends when it is told to.
func TestServe(t *testing.T) {
	t.Parallel()
	file, kid := newConfig(t)
	ctx, cancel := context.WithCancel(t.Context())
	logs, log := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := run(ctx, []string{"--config", file}, io.Discard, log)
		ended <- err
		_ = log.Close()
	}()
	text := make([]byte, 0, 4096)
	admin := regexp.MustCompile(`"admin listener is up","address":"([^"]+)"`)
	for buffer := make([]byte, 4096); !admin.Match(text); {
		n, err := logs.Read(buffer)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		text = append(text, buffer[:n]...)
	}
	go func() { _, _ = io.Copy(io.Discard, logs) }()
	at := "http://" + string(admin.FindSubmatch(text)[1])
	for ready := false; !ready; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(at + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		ready = resp.StatusCode == http.StatusOK
		_ = resp.Body.Close()
	}
	c := must(grpc.NewClient("unix://"+filepath.Join(filepath.Dir(file), "run", "s.sock"), grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer c.Close()
	if _, err := v1.NewExternalJWTSignerClient(c).Sign(ctx, &v1.SignJWTRequest{Claims: "eyJleHAiOjQxMDI0NDQ4MDB9"}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/readyz": "ok", "/livez": "ok",
		"/metrics": `keypost_signer_tokens_alive{kid="` + string(kid) + `"} 1`,
	} {
		resp, err := http.Get(at + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s, %v\n%s", path, resp.Status, err, body)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
