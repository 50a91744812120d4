//go:build pkcs11

package pkcs11

import (
	"context"
	"crypto"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThalesGroup/crypto11"

	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/keystore"
)

const (
	sessions    = 16               // signatures at a time; a token's call cannot be given up
	listedAgain = 30 * time.Second // how old a listing of the token may be
)

// Keys are the key pairs of a token. It is not safe for concurrent use; its keys are.
type Keys struct {
	token Token
	stale atomic.Bool // a signature failed: list the token again, with a new login if that fails

	open   *crypto11.Context // nil before the first use, and after a failure
	keys   []Key
	listed time.Time
}

// Open prepares to use a token. It returns an error if others than its owner and group can read the PIN's file. It does not ask the token.
func Open(token Token) (*Keys, error) {
	info, err := os.Stat(token.PIN)
	if err != nil {
		return nil, fmt.Errorf("read the PIN: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("%s: every user of this machine can reach this PIN; run chmod 600 on it", token.PIN)
	}
	return &Keys{token: token}, nil
}

// Keys returns the pairs of an RSA or ECDSA key that have both halves in the token. Others are passed over. It lists the token at most twice a
// minute, and logs in anew after a failure.
func (k *Keys) Keys(context.Context) ([]Key, error) {
	if !k.stale.Swap(false) && k.open != nil && time.Since(k.listed) < listedAgain {
		return k.keys, nil
	}
	keys, err := k.list()
	if err != nil {
		k.close()
		return nil, fmt.Errorf("PKCS#11 token %q: %w", k.token.Label, err)
	}
	k.keys, k.listed = keys, time.Now()
	return keys, nil
}

func (k *Keys) list() ([]Key, error) {
	if k.open == nil {
		pin, err := regular.Read(k.token.PIN, 4096)
		if err != nil {
			return nil, fmt.Errorf("read the PIN: %w", err)
		}
		k.open, err = crypto11.Configure(&crypto11.Config{Path: k.token.Module, TokenLabel: k.token.Label, Pin: strings.TrimSpace(string(pin)),
			MaxSessions: sessions, PoolWaitTimeout: 5 * time.Second})
		if err != nil {
			return nil, err
		}
	}
	pairs, err := k.open.FindAllKeyPairs()
	if err != nil {
		return nil, err
	}
	var keys []Key
	for _, pair := range pairs {
		if public, err := keystore.NewPublic(pair.Public()); err == nil {
			keys = append(keys, Key{public, pair, k})
		}
	}
	return keys, nil
}

// close ends the login, which does not survive a token that was away.
func (k *Keys) close() {
	if k.open != nil {
		_ = k.open.Close() // the token may be away
	}
	k.open = nil
}

// Key is a private key in the token.
type Key struct {
	public keystore.VerificationKey
	pair   crypto11.Signer
	of     *Keys
}

// Public returns the verification key.
func (k Key) Public() keystore.VerificationKey { return k.public }

// Where names the token.
func (k Key) Where() string { return "pkcs11:" + k.of.token.Label }

// Sign signs a digest: PKCS #1 v1.5 for RSA, ASN.1 for ECDSA. It returns once ctx is done; the token's call ends by itself.
func (k Key) Sign(ctx context.Context, digest []byte, hash crypto.Hash) ([]byte, error) {
	type answer struct {
		signature []byte
		err       error
	}
	done := make(chan answer, 1)
	go func() {
		signature, err := k.pair.Sign(rand.Reader, digest, hash)
		done <- answer{signature, err}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			k.of.stale.Store(true)
			return nil, fmt.Errorf("PKCS#11 token %q: %w", k.of.token.Label, a.err)
		}
		return a.signature, nil
	case <-ctx.Done():
		return nil, errors.New("the PKCS#11 token did not answer in time")
	}
}
