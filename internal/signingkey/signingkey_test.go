package signingkey

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func generated(t *testing.T, kind Kind) Private {
	t.Helper()
	k, err := Generate(kind)
	check(t, err)
	return k
}

func pathsIn(dir string) Paths {
	return Paths{Private: filepath.Join(dir, "sa.key"), Public: filepath.Join(dir, "sa.pub")}
}

// Whatever is generated is written with the modes promised, and both files give the same verification key back.
func TestGenerateWriteRead(t *testing.T) {
	for kind, alg := range map[Kind]string{RSA2048: "RS256", RSA3072: "RS256", P256: "ES256", P384: "ES384", P521: "ES512"} {
		t.Run(string(kind), func(t *testing.T) {
			k, paths := generated(t, kind), pathsIn(t.TempDir())
			check(t, k.Write(paths))
			for path, mode := range map[string]fs.FileMode{paths.Private: 0o600, paths.Public: 0o644} {
				if info, err := os.Stat(path); err != nil || info.Mode() != mode {
					t.Errorf("%s: mode %v, want %v (%v)", path, info.Mode(), mode, err)
				}
			}
			private, err := os.ReadFile(paths.Private)
			check(t, err)
			public, err := os.ReadFile(paths.Public)
			check(t, err)
			fromPrivate, _, isPrivate, err := PublicHalf("sa.key", private)
			check(t, err)
			fromPublic, err := pubkey.Parse("sa.pub", public)
			check(t, err)
			if !isPrivate || len(fromPrivate) != 1 || len(fromPublic) != 1 || !fromPrivate[0].Equal(fromPublic[0]) || !fromPublic[0].Equal(k.Public()) {
				t.Errorf("the files hold other keys")
			}
			if k.Public().Alg() != alg {
				t.Errorf("alg %s, want %s", k.Public().Alg(), alg)
			}
			if _, err := pubkey.Parse("sa.key", private); !errors.Is(err, keystore.ErrPrivateKey) {
				t.Errorf("pubkey takes the private file: %v", err)
			}
		})
	}
	if _, err := Generate("ed25519"); err == nil || !strings.Contains(err.Error(), "rsa2048, rsa3072, rsa4096, p256, p384, p521") {
		t.Errorf("Generate(ed25519): %v", err)
	}
}

// kube-apiserver and ccoctl know these labels.
func TestForms(t *testing.T) {
	for kind, label := range map[Kind]string{RSA2048: "RSA PRIVATE KEY", P256: "EC PRIVATE KEY"} {
		private, err := generated(t, kind).privatePEM()
		check(t, err)
		if block, rest := pem.Decode(private); block == nil || block.Type != label || len(rest) > 0 {
			t.Errorf("%s is not written as one %s", kind, label)
		}
	}
}

func TestWriteNeverOverwrites(t *testing.T) {
	k := generated(t, P256)
	for _, there := range []string{"sa.key", "sa.pub"} {
		for _, kind := range []string{"file", "dangling link", "directory"} {
			t.Run(there+" is a "+kind, func(t *testing.T) {
				dir := t.TempDir()
				place := filepath.Join(dir, there)
				switch kind {
				case "file":
					check(t, os.WriteFile(place, []byte("precious"), 0o600))
				case "dangling link":
					check(t, os.Symlink(filepath.Join(dir, "target"), place))
				case "directory":
					check(t, os.Mkdir(place, 0o700))
				}
				if err := k.Write(pathsIn(dir)); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), there) {
					t.Errorf("Write: %v", err)
				}
				if err := writeNew(place, []byte("new"), 0o600); !errors.Is(err, fs.ErrExist) { // the check that counts, without the early one
					t.Errorf("writeNew: %v", err)
				}
				entries, err := os.ReadDir(dir)
				check(t, err)
				if len(entries) != 1 {
					t.Errorf("left behind: %v", entries)
				}
			})
		}
	}
}

func TestWriteLeavesNothingHalf(t *testing.T) {
	k, dir := generated(t, P256), t.TempDir()
	paths := Paths{Private: filepath.Join(dir, "sa.key"), Public: filepath.Join(dir, "missing", "sa.pub")}
	if err := k.Write(paths); err == nil {
		t.Fatal("the public half cannot have been written")
	}
	if _, err := os.Lstat(paths.Private); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the private half is left: %v", err)
	}
	same := filepath.Join(dir, "same")
	if err := k.Write(Paths{Private: same, Public: dir + "/./same"}); err == nil {
		t.Error("one file for both halves")
	}
	if err := (Private{}).Write(pathsIn(dir)); err == nil {
		t.Error("a key that was never generated is written")
	}
}

// No way of printing a key prints the key.
func TestPrivateIsNotPrinted(t *testing.T) {
	k := generated(t, P256)
	asJSON, err := json.Marshal(k) //nolint:staticcheck // that nothing comes out is what is tested
	check(t, err)
	for _, s := range []string{
		fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %x %d %s %q", k, k, k, k, k, k, k), fmt.Sprintf("%v %+v", &k, struct{ K Private }{k}), string(asJSON),
	} {
		if left := strings.NewReplacer("[signing key]", "", "{", "", "}", "", "K:", "", "&", "", " ", "").Replace(s); left != "" {
			t.Errorf("prints %q", s)
		}
	}
}

func pkcs8(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func TestPublicHalf(t *testing.T) {
	ec, rsa := generated(t, P256), generated(t, RSA2048)
	ecPEM, err := ec.privatePEM()
	check(t, err)
	rsaPEM, err := rsa.privatePEM()
	check(t, err)
	public := []byte(ec.public.PEM())
	parameters := []byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n")
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	check(t, err)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, []byte("\n")) }
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00"}, Bytes: []byte("x")})

	for _, tt := range []struct {
		name string
		data []byte
		keys []Private // found
		want string    // or a part of the refusal
	}{
		{"SEC 1", ecPEM, []Private{ec}, ""},
		{"PKCS#1", rsaPEM, []Private{rsa}, ""},
		{"PKCS#8", join(pkcs8(t, ec.signer), pkcs8(t, rsa.signer)), []Private{ec, rsa}, ""},
		{"as openssl writes EC", join(parameters, ecPEM), []Private{ec}, ""},
		{"both halves in one file", join(ecPEM, public, rsaPEM), []Private{ec, rsa}, ""},
		{"empty", nil, nil, "it is empty"},
		{"damaged block between", join(ecPEM, bytes.Replace(rsaPEM, []byte("\nMII"), []byte("\n!!!"), 1), ecPEM), nil, "PEM block 2: it is a private key; it is damaged"},
		{"encrypted", encrypted, nil, "PEM block 1: it is encrypted"},
		{"encrypted PKCS#8", pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")}), nil, "it is encrypted"},
		{"OpenSSH", pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: []byte("x")}), nil, "OpenSSH"},
		{"rubbish inside", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret")}), nil, "labelled as a private key but is none"},
		{"Ed25519", pkcs8(t, ed), nil, "RSA or ECDSA"},
		{"too large", bytes.Repeat([]byte{'x'}, pubkey.MaxSize+1), nil, "larger than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			keys, _, private, err := PublicHalf("some.key", tt.data)
			if tt.want != "" {
				if err == nil || !strings.HasPrefix(err.Error(), "read public keys from some.key: ") || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
				return
			}
			check(t, err)
			if !private {
				t.Error("it reports no private key")
			}
			if len(keys) != len(tt.keys) {
				t.Fatalf("%d keys, want %d", len(keys), len(tt.keys))
			}
			for i := range keys {
				if !keys[i].Equal(tt.keys[i].Public()) {
					t.Errorf("key %d is another", i)
				}
			}
		})
	}
}

// FuzzPublicHalf: no input makes it crash, and no refusal quotes the input.
func FuzzPublicHalf(f *testing.F) {
	k, err := Generate(P256)
	if err != nil {
		f.Fatal(err)
	}
	private, err := k.privatePEM()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(private)
	f.Add(private[:100])
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN SECRETSECRETSECRETSECRET-----\nc2VjcmV0\n-----END SECRETSECRETSECRETSECRET-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, _, _, err := PublicHalf("f", data)
		if (err == nil) != (len(keys) > 0) {
			t.Fatalf("%d keys and %v", len(keys), err)
		}
		if err == nil {
			return
		}
		for i := 0; i+16 <= len(data); i++ {
			if strings.Contains(err.Error(), string(data[i:i+16])) && !strings.Contains("-----BEGIN-----END read public keys from f: PEM block 1: it ", string(data[i:i+16])) {
				t.Fatalf("%v quotes the input", err)
			}
		}
	})
}
