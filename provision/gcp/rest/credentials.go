package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/oauth2/google"
)

// scope is the one scope of all calls; what the caller may do is left to its roles.
const scope = "https://www.googleapis.com/auth/cloud-platform"

// variables are where ccoctl looks for credentials first (pkg/cmd/provisioning/gcp/credentials.go of
// openshift/cloud-credential-operator).
func variables() []string {
	return []string{"GOOGLE_CREDENTIALS", "GOOGLE_CLOUD_KEYFILE_JSON", "GCLOUD_KEYFILE_JSON"}
}

// found is a credential's JSON; none for those that only Google's library finds.
type found struct {
	source string // as ccoctl says it
	data   []byte
}

// caller is the email in the credentials; empty if they have none.
func (f found) caller() string {
	var said struct {
		Email string `json:"client_email"`
	}
	if json.Unmarshal(f.data, &said) != nil {
		return ""
	}
	return said.Email
}

// quotaProject is the project whose quota the calls of a user's own credentials count against. Google refuses some of them without
// (https://cloud.google.com/docs/quotas/set-quota-project); a service account has its own.
func (f found) quotaProject() string {
	var said struct {
		Project string `json:"quota_project_id"`
	}
	if name := os.Getenv("GOOGLE_CLOUD_QUOTA_PROJECT"); name != "" || json.Unmarshal(f.data, &said) != nil {
		return name
	}
	return said.Project
}

// find looks where ccoctl looks. What is set and cannot be read is an error: to pass over it, as ccoctl does, would be to act
// as somebody else than was meant.
func find() (found, error) {
	for _, name := range variables() {
		value := strings.TrimSpace(os.Getenv(name))
		if value == "" {
			continue
		}
		source := fmt.Sprintf("environment variable %q", name)
		if strings.HasPrefix(value, "{") {
			return found{source: source + ", content <redacted>", data: []byte(value)}, nil
		}
		data, err := readNamed(name, value)
		if err != nil {
			return found{}, err
		}
		return found{source: fmt.Sprintf("%s, file %q", source, value), data: data}, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return found{}, nil //nolint:nilerr // no home, no file in it
	}
	path := filepath.Join(home, ".gcp", "osServiceAccount.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return found{}, nil
	}
	if err != nil {
		return found{}, fmt.Errorf("credentials: %w", err)
	}
	return found{source: fmt.Sprintf("file %q", path), data: data}, nil
}

// readNamed reads the file that an environment variable names. The error does not quote the path, which may be the key itself.
func readNamed(variable, path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if e, is := errors.AsType[*fs.PathError](err); is {
		err = e.Err
	}
	if err != nil {
		return nil, fmt.Errorf("credentials: the environment variable %q is %s: %w", variable, expected(variable), err)
	}
	return data, nil
}

func expected(variable string) string {
	if variable == libraryVariable {
		return "not the path of a file that can be read, and takes nothing else"
	}
	return "neither JSON nor the path of a file that can be read"
}

// libraryVariable is read by Google's library, whose error quotes it.
const libraryVariable = "GOOGLE_APPLICATION_CREDENTIALS"

// authenticate finds the credentials.
func (c *Client) authenticate(ctx context.Context) error {
	f, err := find()
	if err != nil {
		return Problemf(NoCredentials, "%w", err)
	}
	var creds *google.Credentials
	if f.data == nil {
		if path := os.Getenv(libraryVariable); path != "" {
			if _, err := readNamed(libraryVariable, path); err != nil {
				return Problemf(NoCredentials, "%w", err)
			}
		}
		if creds, err = google.FindDefaultCredentials(ctx, scope); err != nil {
			return Problemf(NoCredentials, "no Google credentials were found: set GOOGLE_CREDENTIALS to a service account's key file, "+
				"or run gcloud auth application-default login (%s)", oneLine(err))
		}
		f = found{source: "gcloud CLI defaults", data: creds.JSON}
	} else if creds, err = fromJSON(ctx, f.data); err != nil {
		return Problemf(NoCredentials, "credentials of the %s: %s", f.source, oneLine(err))
	}
	c.found, c.tokens, c.quota = f, creds.TokenSource, f.quotaProject()
	return nil
}

// fromJSON reads credentials of any kind that Google's library knows. They are the caller's own, so that the URLs which some
// of them name are trusted.
func fromJSON(ctx context.Context, data []byte) (*google.Credentials, error) {
	var said struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(data, &said); err != nil {
		return nil, errors.New("they are not JSON") // the library's error may quote them
	}
	return google.CredentialsFromJSONWithType(ctx, data, google.CredentialsType(said.Type), scope)
}
