// Package rest asks the services of Google Cloud for one project, over REST. It finds the credentials where ccoctl does, makes calls
// with their retries, reads lists to their end, awaits operations, makes steps of calls for package cloud, and explains errors: which
// call failed, for what reason, what to do. It knows no method of any service.
package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/keypost/keypost/provision/cloud"
)

// Parallel is how many reads of one kind are under way at once.
const Parallel = 20

// domain is that of Google's own services. Secrets name those of no other.
const domain = "googleapis.com"

// consistency is how long Google may take to show what was written
// (https://cloud.google.com/iam/docs/access-change-propagation: "in most cases … within 2 minutes").
const consistency = 5 * time.Minute

// Access says which project is meant and how it is reached.
type Access struct {
	Project string // its ID or its number

	// Transport makes all calls, those for tokens too; nil for one that obeys HTTPS_PROXY.
	Transport http.RoundTripper

	// OnWait is called every 2 seconds for each call or change under way, from any goroutine.
	OnWait func(cloud.Wait)

	Tokens oauth2.TokenSource // access tokens; nil for those of the credentials that are found
}

// Client makes calls. Its methods may be called concurrently.
type Client struct {
	API cloud.API // for changes

	access Access
	found  found
	tokens oauth2.TokenSource
	quota  string // project that calls count against; empty for the credentials' own
	http   *http.Client
}

// Open returns a Client with the credentials that ccoctl would take: of the environment variables GOOGLE_CREDENTIALS,
// GOOGLE_CLOUD_KEYFILE_JSON and GCLOUD_KEYFILE_JSON, each a file or its content; of ~/.gcp/osServiceAccount.json; else the
// application default ones. It never asks anybody, and calls nobody but the metadata server of a machine in Google Cloud. The
// error has the problem [NoCredentials].
func Open(ctx context.Context, a Access) (*Client, error) {
	c := newClient(a)
	if a.Tokens != nil {
		c.found, c.tokens = found{source: "caller"}, a.Tokens
		return c, nil
	}
	// Tokens are fetched again long after ctx has ended; only what it carries is taken along.
	// A redirect would take what asks for a token, which the caller has signed, to wherever it leads, also without TLS.
	ctx = context.WithValue(context.WithoutCancel(ctx), oauth2.HTTPClient,
		&http.Client{Transport: c.http.Transport, CheckRedirect: c.http.CheckRedirect, Timeout: attemptTime})
	if err := c.authenticate(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// newClient returns a client that does not have its credentials.
func newClient(a Access) *Client {
	if a.OnWait == nil {
		a.OnWait = func(cloud.Wait) {}
	}
	if a.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = Parallel
		a.Transport = t
	}
	once := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // Google's methods send nobody elsewhere
	return &Client{
		access: a, http: &http.Client{Transport: a.Transport, CheckRedirect: once},
		API: cloud.API{Name: "Google Cloud", Consistency: consistency, CallTime: callTime, FirstPause: time.Second, OnWait: a.OnWait},
	}
}

// Source says where the credentials were found, as ccoctl's line "Credentials loaded from …" ends.
func (c *Client) Source() string { return c.found.source }

// Caller is the email of the credentials' account; empty if they do not say.
func (c *Client) Caller() string { return c.found.caller() }

// JSON marshals a value made of strings, lists and maps, which cannot fail.
func JSON(v any) []byte {
	out, _ := json.Marshal(v)
	return out
}

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
