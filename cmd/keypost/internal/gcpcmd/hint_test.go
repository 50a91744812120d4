package gcpcmd

import (
	"errors"
	"strings"
	"testing"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/gcp/rest"
)

// migrate has no --adopt: what is somebody else's is left alone, or taken over by the command that has it.
func TestMigrateAdvisesNoFlagThatItLacks(t *testing.T) {
	f := &migrateFlags{}
	f.Name, f.Project, f.requested.Dir, f.from = "prod-a", "my-project", "requests", "old"
	f.cloud.To = &f.Options.Options
	e, is := errors.AsType[*cli.HintedError](f.hinted(&rest.Error{Problem: rest.NotOwned, Err: errors.New("it is somebody else's")}))
	if !is {
		t.Fatal("no hint")
	}
	hint := e.Hint(&cli.Factory{})
	if !strings.Contains(hint, "--workload-identity-provider ID") || strings.Count(hint, "--adopt") != 1 ||
		!strings.Contains(hint, "keypost gcp create-service-accounts --name prod-a --project my-project --workload-identity-pool prod-a --workload-identity-provider old --credentials-requests-dir requests") {
		t.Errorf("it advises %s", hint)
	}
}

// A provider of the new name that trusts another issuer may be what a stopped run brought back: the command that has --adopt ends that.
func TestMigrateNamesWhatGivesItsProviderTheIssuer(t *testing.T) {
	f := &migrateFlags{}
	f.Name, f.Project, f.IssuerURL, f.Upload, f.ProviderID = "prod-a", "my-project", "https://oidc.internal/prod-a", true, "prod-a-fiuic"
	e, is := errors.AsType[*cli.HintedError](f.hinted(&rest.Error{Problem: rest.OtherIssuer, Err: errors.New("it trusts another issuer")}))
	if !is {
		t.Fatal("no hint")
	}
	const want = "keypost gcp create-workload-identity-provider --name prod-a --project my-project --workload-identity-pool prod-a --workload-identity-provider prod-a-fiuic " +
		"--issuer-url https://oidc.internal/prod-a --key-storage-method pool-jwk-file --output-dir prod-a-fiuic --adopt"
	if hint := e.Hint(&cli.Factory{}); !strings.Contains(hint, want) {
		t.Errorf("it advises %s", hint)
	}
}
