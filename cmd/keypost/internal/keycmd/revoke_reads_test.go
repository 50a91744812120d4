package keycmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// A revocation reads its key set once before it is written, and the store once after it.
func TestRevokeReadsOnce(t *testing.T) {
	mem := storetest.NewMemStore(t)
	stolen, replacement := storetest.Key(t), storetest.Key(t)
	for n, k := range map[keystore.Name]keystore.VerificationKey{"prod-a": stolen, "prod-b": storetest.Key(t), "prod-c": storetest.Key(t)} {
		if err := keystore.Create(t.Context(), mem.Store, storetest.KeySet(t, n, k)); err != nil {
			t.Fatal(err)
		}
	}
	for name, last := range map[string]keystore.RevokeOptions{"alone": {LeaveEmpty: true}, "with a replacement": {Replacement: &replacement}} {
		gets, lists, early := map[keystore.Name]int{}, 0, 0
		written := false
		mem.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
			switch op.Kind {
			case storetest.OpGet:
				gets[op.Name]++
			case storetest.OpList:
				lists++
			case storetest.OpPut:
				written = true
			}
			if !written && op.Name != "prod-a" {
				early++
			}
			return true, nil
		})
		o := &revokeOptions{Factory: &cli.Factory{Err: io.Discard}, why: "stolen"}
		c, err := o.revoke(t.Context(), mem.Store, []string{"prod-a", string(stolen.ID())}, last)
		if err == nil {
			err = o.warnElsewhere(t.Context(), mem.Store, c, last.Replacement)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !maps.Equal(gets, map[keystore.Name]int{"prod-a": 1, "prod-b": 1, "prod-c": 1}) || lists != 1 || early != 0 {
			t.Errorf("%s: documents read %v, listed %d times, %d calls for others before it was written", name, gets, lists, early)
		}
		mem.Inject(nil)
		mem.Set("prod-a", encoded(t, storetest.KeySet(t, "prod-a", stolen)))
	}
}

// A write that failed after the key set was read leaves its issuer known, so that the lines that end the trust can be pasted.
func TestLinesOfAFailedWriteNameTheIssuer(t *testing.T) {
	mem := storetest.NewMemStore(t)
	stolen := storetest.Key(t)
	s := storetest.KeySet(t, "prod-a", stolen)
	if err := keystore.Create(t.Context(), mem.Store, s); err != nil {
		t.Fatal(err)
	}
	mem.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
		if op.Kind == storetest.OpPut {
			return false, errors.New("the disk is full")
		}
		return true, nil
	})
	var out bytes.Buffer
	o := &revokeOptions{Factory: &cli.Factory{Err: &out}, why: "stolen"}
	args := []string{"prod-a", string(stolen.ID())}
	c, err := o.revoke(t.Context(), mem.Store, args, keystore.RevokeOptions{LeaveEmpty: true})
	if err == nil {
		t.Fatal("it was revoked")
	}
	err = o.notRevoked(args, c, cli.WithHint(err, "no other hint is made up"))
	if got := out.String(); strings.Contains(got, "HOST/PATH") || !strings.Contains(got, s.Issuers()[0].String()) {
		t.Errorf("%v\n%s", err, got)
	}
}
