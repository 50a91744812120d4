package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/externaljwt/apis/v1"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
)

// signs is a way to make a token, and the process that is accounted with it; nil: this one alone.
type signs struct {
	label  string
	token  func(context.Context) error
	server *server
	took   []float64 // ms
	caller time.Duration
	cpu    time.Duration // of the server
}

const (
	signRounds, signBurst = 40, 50
	signTarget            = 1.0 // ms over the in-tree signer, at the median
	signerRSS             = 20  // MiB
)

// signer compares keypost-signer, asked over its socket, with what kube-apiserver does itself for the same key: go-jose's signer for the
// claims of a service account token. k8s.io/kubernetes is no library; its JWTTokenGenerator hands claims to the same package (an older
// major version of it), and nothing of it takes longer. Both are measured from the claims to the whole token, in turns.
func (b *bench) signer(ctx context.Context, r *report) error {
	defer b.stopAll()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	for alg, key := range map[jose.SignatureAlgorithm]crypto.Signer{jose.RS256: rsaKey, jose.ES256: ecKey} {
		inTree, external, err := b.signers(ctx, alg, key)
		if err != nil {
			return fmt.Errorf("signer, %s: %w", alg, err)
		}
		for range signRounds {
			for _, s := range []*signs{inTree, external} {
				if err := s.burst(ctx); err != nil {
					return fmt.Errorf("%s, %s: %w", s.label, alg, err)
				}
			}
		}
		kib, err := external.server.resident()
		if err != nil {
			return err
		}
		r.signed(string(alg), inTree, external, float64(kib)/1024)
	}
	return nil
}

// burst makes tokens, one after the other.
func (s *signs) burst(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before time.Duration
	if s.server != nil {
		var err error
		if before, err = s.server.settle(); err != nil {
			return err
		}
	}
	caller := ownCPU()
	for range signBurst {
		began := time.Now()
		if err := s.token(ctx); err != nil {
			return err
		}
		s.took = append(s.took, float64(time.Since(began).Microseconds())/1000)
	}
	s.caller += ownCPU() - caller
	if s.server == nil {
		return nil
	}
	after, err := s.server.settle()
	s.cpu += after - before
	return err
}

// ownCPU is the processor time of this process.
func ownCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // it has no error for itself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (r *report) signed(alg string, inTree, external *signs, mib float64) {
	r.table("A service account token, "+alg+", from its claims", "", "p50", "p99", "CPU of the caller", "CPU of the signer", "resident", "")
	base := quantile(inTree.took, 0.5)
	for _, s := range []*signs{inTree, external} {
		p50, n := quantile(s.took, 0.5), time.Duration(len(s.took))
		memory, verdict := "", ""
		if s.server != nil {
			memory = fmt.Sprintf("%.1f MiB", mib)
			verdict = r.judge(p50-base, bound{target: signTarget}, "%.1f ms over it") + ", " + r.judge(mib, bound{target: signerRSS}, "%.0f MiB")
		}
		r.row(s.label, fmt.Sprintf("%.2f ms", p50), fmt.Sprintf("%.2f ms", quantile(s.took, 0.99)), (s.caller / n).Round(time.Microsecond).String(),
			(s.cpu / n).Round(time.Microsecond).String(), memory, verdict)
	}
	r.end()
}

// signers starts a keypost-signer with a key, and makes an in-tree signer with the same.
func (b *bench) signers(ctx context.Context, alg jose.SignatureAlgorithm, key crypto.Signer) (inTree, external *signs, err error) {
	dir := filepath.Join(b.dir, "signer-"+string(alg))
	public, err := holdKey(ctx, dir, key)
	if err != nil {
		return nil, nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, nil, err
	}
	config, socket := filepath.Join(dir, "signer.yaml"), filepath.Join(dir, "run", "s.sock")
	text := fmt.Sprintf("dir: %[1]s/keysets\nkeySet: signer\nkeys: %[1]s/keys\nsocket: {path: %[2]s, uids: [%[3]d]}\nadmin: {address: %[4]q}\n", dir, socket, os.Getuid(), address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, nil, err
	}
	s, err := b.spawn(ctx, program{name: "signer-" + string(alg), argv: []string{filepath.Join(b.bin, "keypost-signer"), "--config", config}, ready: answersOK("http://" + address + "/readyz")})
	if err != nil {
		return nil, nil, err
	}
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	client := v1.NewExternalJWTSignerClient(connection)
	external = &signs{label: "keypost-signer, over its socket", server: s, token: func(ctx context.Context) error {
		claims, err := json.Marshal(tokenClaims())
		if err != nil {
			return err
		}
		_, err = client.Sign(ctx, &v1.SignJWTRequest{Claims: base64.RawURLEncoding.EncodeToString(claims)}, grpc.WaitForReady(true))
		return err
	}}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: string(public.ID())}}, nil)
	if err != nil {
		return nil, nil, err
	}
	return &signs{label: "in-tree (go-jose)", token: func(context.Context) error {
		_, err := jwt.Signed(signer).Claims(tokenClaims()).Serialize()
		return err
	}}, external, nil
}

// holdKey writes a key, and a key set in which it is active.
func holdKey(ctx context.Context, dir string, key crypto.Signer) (keystore.VerificationKey, error) {
	public, err := keystore.NewPublic(key.Public())
	if err != nil {
		return public, err
	}
	for _, d := range []string{"keysets", "keys"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return public, err
		}
	}
	issuer, err := keystore.ParseIssuerURL("https://"+host+"/signer", false)
	if err != nil {
		return public, err
	}
	set, err := keystore.New(keystore.Change{At: time.Now(), By: "bench"}, keystore.Spec{Name: "signer", Issuers: []keystore.IssuerURL{issuer}, Keys: []keystore.VerificationKey{public}})
	if err != nil {
		return public, err
	}
	store, err := filestore.Open(filepath.Join(dir, "keysets"))
	if err != nil {
		return public, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return public, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return public, errors.Join(keystore.Create(ctx, keystore.NewStore(store), set), os.WriteFile(filepath.Join(dir, "keys", "sa.key"), text, 0o600))
}

// tokenClaims are those of a projected token of a pod.
func tokenClaims() map[string]any {
	now := time.Now().Unix()
	return map[string]any{
		"aud": []string{"sts.amazonaws.com"}, "exp": now + 3600, "iat": now, "nbf": now, "iss": "https://" + host + "/signer", "jti": rand.Text(),
		"sub": "system:serviceaccount:default:app", "kubernetes.io": map[string]any{
			"namespace": "default", "node": map[string]string{"name": "node-1", "uid": "e30e9bd6-3a0c-4a5e-9d5a-3b0a2ad4ff01"},
			"pod":            map[string]string{"name": "app-7c9d8b5f5-x2x4z", "uid": "0b0f6d3e-52a3-4d3c-8a0e-6d2f0e3a1b11"},
			"serviceaccount": map[string]string{"name": "app", "uid": "5c9a4b52-7d2b-4b57-a7f5-3b5a7b0c9e22"}},
	}
}
