package open

import (
	"context"
	"os/exec"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/kubestore"
	"github.com/keypost/keypost/keystore/s3store"
)

// identityTime bounds how long a change waits for the name of who makes it.
const identityTime = 3 * time.Second

// Identity returns whom a store takes its caller for: kubernetes:USER as the API server says, aws:ARN as AWS says, git:NAME <MAIL>
// as a work tree has it that the directory is in. It is empty where the store does not say, or not in time: then what people say
// of themselves is all there is.
//
// What Git says is what somebody has configured. That of the others is theirs, but a writer can put whatever they like into a
// document: only what the store itself logs is a record.
func Identity(ctx context.Context, b keystore.Backend) string {
	ctx, cancel := context.WithTimeout(ctx, identityTime)
	defer cancel()
	var kind, name string
	switch b := b.(type) {
	case *kubestore.Backend:
		kind = "kubernetes:"
		name, _ = b.Identity(ctx) // who cannot be asked for a name has none: no change waits for it
	case *s3store.Backend:
		kind = "aws:"
		name, _ = b.Identity(ctx)
	case *filestore.Backend:
		kind, name = "git:", gitAuthor(ctx, b.Dir())
	}
	if name == "" {
		return ""
	}
	return kind + name
}

// gitAuthor returns who would be the author of a commit in dir, empty if it is in no work tree or nobody is configured.
func gitAuthor(ctx context.Context, dir string) string {
	if inside, err := git(ctx, dir, "rev-parse", "--is-inside-work-tree"); err != nil || inside != "true" {
		return ""
	}
	ident, err := git(ctx, dir, "-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT") // NAME <MAIL> SECONDS ZONE
	end := strings.LastIndex(ident, ">")
	if err != nil || end < 0 {
		return ""
	}
	return ident[:end+1]
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).Output() //nolint:gosec // dir is an operand of -C
	return strings.TrimSpace(string(out)), err
}
