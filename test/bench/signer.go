package main

import (
	"context"
	"crypto"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
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
	"github.com/keypost/keypost/test/keys"
)

// signs is a way to make a token, and the process that is accounted with it; nil: only this one.
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
// claims of a service account token. k8s.io/kubernetes is not a library; its JWTTokenGenerator hands claims to the same package (an older
// major version of it), and nothing of it takes longer. All are measured from the claims to the whole token, in turns. The runtime's
// settings are those of the unit and the static pod.
func (b *bench) signer(ctx context.Context, r *report) error {
	defer b.stopAll()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := b.buildPKCS11(ctx); err != nil {
		return err
	}
	for _, kind := range []struct {
		alg jose.SignatureAlgorithm
		key crypto.Signer
	}{{jose.RS256, keys.NewRSA()()}, {jose.ES256, keys.NewEC()}} {
		all, err := b.signers(ctx, kind.alg, kind.key)
		if err != nil {
			return fmt.Errorf("signer, %s: %w", kind.alg, err)
		}
		for range signRounds {
			for _, s := range all {
				if err := s.burst(ctx); err != nil {
					return fmt.Errorf("%s, %s: %w", s.label, kind.alg, err)
				}
			}
		}
		if err := r.signed(string(kind.alg), all); err != nil {
			return err
		}
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

// signed reports what was measured; the first is the in-tree signer. Only keys in files have targets: what else is there stands for
// something that takes other time.
func (r *report) signed(alg string, all []*signs) error {
	r.table("A service account token, "+alg+", from its claims", "", "p50", "p99", "CPU of the caller", "CPU of the signer", "resident", "of that its own", "")
	base := quantile(all[0].took, 0.5)
	for i, s := range all {
		p50, n := quantile(s.took, 0.5), time.Duration(len(s.took))
		memory, own, verdict := "", "", ""
		if s.server != nil {
			kib, err := s.server.resident()
			anon, err2 := s.server.status("RssAnon")
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			mib := float64(kib) / 1024
			memory, own = fmt.Sprintf("%.1f MiB", mib), fmt.Sprintf("%.1f MiB", float64(anon)/1024)
			if i == 1 {
				verdict = r.judge(p50-base, bound{target: signTarget}, "%.1f ms over it") + ", " + r.judge(mib, bound{target: signerRSS}, "%.0f MiB")
			}
		}
		r.row(s.label, fmt.Sprintf("%.2f ms", p50), fmt.Sprintf("%.2f ms", quantile(s.took, 0.99)), (s.caller / n).Round(time.Microsecond).String(),
			(s.cpu / n).Round(time.Microsecond).String(), memory, own, verdict)
	}
	r.end()
	return nil
}

// signers makes an in-tree signer with a key, and starts a keypost-signer for each place that can hold it.
func (b *bench) signers(ctx context.Context, alg jose.SignatureAlgorithm, key crypto.Signer) ([]*signs, error) {
	public, err := keystore.NewPublic(key.Public())
	if err != nil {
		return nil, err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: string(public.ID())}}, nil)
	if err != nil {
		return nil, err
	}
	all := []*signs{{label: "in-tree (go-jose)", token: func(context.Context) error {
		_, err := jwt.Signed(signer).Claims(tokenClaims()).Serialize()
		return err
	}}}
	for _, h := range b.holders() {
		s, err := b.external(ctx, string(alg)+"-"+h.name, h, public, key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.label, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// external starts a keypost-signer whose key is in one of the places.
func (b *bench) external(ctx context.Context, name string, h holder, public keystore.VerificationKey, key crypto.Signer) (*signs, error) {
	dir := filepath.Join(b.dir, "signer-"+name)
	if err := publishKey(ctx, filepath.Join(dir, "keysets"), "signer", public); err != nil {
		return nil, err
	}
	line, env, err := h.hold(ctx, dir, key)
	if err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	config, socket := filepath.Join(dir, "signer.yaml"), filepath.Join(dir, "run", "s.sock")
	text := fmt.Sprintf("dir: %s/keysets\nkeySet: signer\n%s\nsocket: {path: %s, uids: [%d]}\nadmin: {address: %q}\n", dir, line, socket, os.Getuid(), address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s, err := b.spawn(ctx, program{
		name: "signer-" + name, argv: []string{h.program, "--config", config}, env: append(env, unitEnv()...), ready: answersOK("http://" + address + "/readyz"),
	})
	if err != nil {
		return nil, err
	}
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	client := v1.NewExternalJWTSignerClient(connection)
	return &signs{label: h.label, server: s, token: func(ctx context.Context) error {
		claims, err := json.Marshal(tokenClaims())
		if err != nil {
			return err
		}
		_, err = client.Sign(ctx, &v1.SignJWTRequest{Claims: base64.RawURLEncoding.EncodeToString(claims)}, grpc.WaitForReady(true))
		return err
	}}, nil
}

// unitEnv is what the unit and the static pod set.
func unitEnv() []string { return []string{"GOMEMLIMIT=256MiB", "GOGC=50"} }

// publishKey writes a key set in which a key has long been active.
func publishKey(ctx context.Context, dir string, name keystore.Name, public keystore.VerificationKey) error {
	issuer, err := keystore.ParseIssuerURL("https://"+host+"/"+string(name), false)
	if err != nil {
		return err
	}
	set, err := keystore.New(keystore.Change{At: time.Now().Add(-30 * 24 * time.Hour), By: "bench"}, keystore.Spec{
		Name: name, Issuers: []keystore.IssuerURL{issuer}, Keys: []keystore.VerificationKey{public}, Policy: keystore.Policy{RelyingParties: []string{"aws"}},
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	store, err := filestore.Open(dir)
	if err != nil {
		return err
	}
	return keystore.Create(ctx, keystore.NewStore(store), set)
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
