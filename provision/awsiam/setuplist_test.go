package awsiam_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/golden"
)

// TestSetUpList: the README of issuer/verify is made from this list.
func TestSetUpList(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, u := range awsSetUps() {
		fmt.Fprintf(&b, "%s %s\n", u.code, u.name)
	}
	golden.Same(t, filepath.Join("..", "..", "issuer", "verify", "testdata", "setups", "aws.txt"), b.String())
}
