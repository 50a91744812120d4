package gcpcmd

import (
	"errors"
	"strings"
	"testing"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/gcp/iam"
)

// migrate has no --adopt: what is somebody else's is left alone, or taken over by the command that has it.
func TestMigrateAdvisesNoFlagThatItLacks(t *testing.T) {
	f := &migrateFlags{}
	f.Name, f.Project, f.requested.Dir, f.from = "prod-a", "my-project", "requests", "old"
	f.cloud.To = &f.Options.Options
	e, is := errors.AsType[*cli.HintedError](f.hinted(&iam.Error{Problem: iam.NotOwned, Err: errors.New("it is somebody else's")}))
	if !is {
		t.Fatal("no hint")
	}
	hint := e.Hint(&cli.Factory{})
	if !strings.Contains(hint, "--workload-identity-provider ID") || strings.Count(hint, "--adopt") != 1 ||
		!strings.Contains(hint, "keypost gcp create-service-accounts --name prod-a --project my-project --workload-identity-pool prod-a --workload-identity-provider old --credentials-requests-dir requests") {
		t.Errorf("it advises %s", hint)
	}
}
