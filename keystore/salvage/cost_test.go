package salvage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/salvage"
)

// What is left of a document is whatever somebody wrote there: reading it costs a bounded time.
func TestReadCost(t *testing.T) {
	for _, part := range []string{
		"-----BEGIN A-----", "-----BEGIN A-----x-----END A-----", "-----BEGIN PUBLIC KEY-----\n", "fingerprint: ", "fingerprint: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n",
		"generation: 1 ", "\\n", " ", "{", "gone: ", "a: &a [*a]\n",
	} {
		doc := []byte(strings.Repeat(part, keystore.MaxDocument/4/len(part)))
		began := time.Now()
		salvage.Read(doc)
		took := time.Since(began)
		t.Logf("%8v %q", took.Round(time.Millisecond), part)
		if took > 20*time.Second {
			t.Errorf("%q: %v", part, took)
		}
	}
}
