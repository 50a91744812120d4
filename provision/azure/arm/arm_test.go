package arm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A key or a token in the place of a file's path is in no error.
func TestASecretInAPathsPlaceIsNotShown(t *testing.T) {
	const secret = "SECRET"
	key := "-----BEGIN PRIVATE KEY-----\n" + secret + "\n-----END PRIVATE KEY-----\n"
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE"} {
		for _, value := range []string{key, "eyJ" + secret, strings.Repeat(secret, 1000), file + "/" + secret} {
			t.Setenv("AZURE_TENANT_ID", "99999999-8888-7777-6666-555555555555")
			t.Setenv("AZURE_CLIENT_ID", "99999999-8888-7777-6666-555555555555")
			t.Setenv(name, value)
			_, err := Open(Account{Subscription: "11111111-2222-3333-4444-555555555555"}, nil)
			e, is := errors.AsType[*Error](err)
			if !is || e.Problem != NoCredentials || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), secret) {
				t.Errorf("%s=%.20q: %v", name, value, err)
			}
			t.Setenv(name, "")
		}
		if err := checkFiles(func(n string) string { return map[string]string{name: file}[n] }); err != nil {
			t.Error(err)
		}
	}
}
