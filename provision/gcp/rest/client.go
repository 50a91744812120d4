// Package rest asks the services of Google Cloud for one project, over REST. It finds the credentials where ccoctl does, makes calls
// with their retries, reads lists to their end, awaits operations, makes steps of calls for package cloud, and explains errors: which
// call failed, for what reason, what to do. It knows no method of any service.
package rest

import (
	"cmp"
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
	API    cloud.API // for changes
	Source string    // where the credentials were found, as ccoctl's line "Credentials loaded from …" ends
	Caller string    // the email of the credentials' account; empty if they do not say

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
		c.Source, c.tokens = "caller", a.Tokens
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
		http: &http.Client{Transport: a.Transport, CheckRedirect: once},
		API:  cloud.API{Name: "Google Cloud", Consistency: consistency, CallTime: callTime, FirstPause: time.Second, OnWait: a.OnWait},
	}
}

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

// find looks where ccoctl looks, and returns a credential's JSON with where it was, as ccoctl says it; none for what only Google's library
// finds. What is set and cannot be read is an error: to pass over it, as ccoctl does, would be to act as somebody else than was meant.
func find() (source string, data []byte, err error) {
	for _, name := range variables() {
		value := strings.TrimSpace(os.Getenv(name))
		if value == "" {
			continue
		}
		source := fmt.Sprintf("environment variable %q", name)
		if strings.HasPrefix(value, "{") {
			return source + ", content <redacted>", []byte(value), nil
		}
		data, err := readNamed(name, value)
		return fmt.Sprintf("%s, file %q", source, value), data, err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", nil, nil //nolint:nilerr // no home, no file in it
	}
	path := filepath.Join(home, ".gcp", "osServiceAccount.json")
	data, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("credentials: %w", err)
	}
	return fmt.Sprintf("file %q", path), data, nil
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
	source, data, err := find()
	if err != nil {
		return Problemf(NoCredentials, "%w", err)
	}
	var creds *google.Credentials
	if data == nil {
		if path := os.Getenv(libraryVariable); path != "" {
			if _, err := readNamed(libraryVariable, path); err != nil {
				return Problemf(NoCredentials, "%w", err)
			}
		}
		if creds, err = google.FindDefaultCredentials(ctx, scope); err != nil {
			return Problemf(NoCredentials, "no Google credentials were found: set GOOGLE_CREDENTIALS to a service account's key file, "+
				"or run gcloud auth application-default login (%s)", oneLine(err))
		}
		source, data = "gcloud CLI defaults", creds.JSON
	}
	var says struct {
		Type    string `json:"type"`
		Email   string `json:"client_email"`
		Project string `json:"quota_project_id"`
	}
	if err := json.Unmarshal(data, &says); err != nil && creds == nil {
		return Problemf(NoCredentials, "credentials of the %s: they are not JSON", source) // the library's error may quote them
	}
	if creds == nil { // the caller's own, so that the URLs which some of them name are trusted
		if creds, err = google.CredentialsFromJSONWithType(ctx, data, google.CredentialsType(says.Type), scope); err != nil {
			return Problemf(NoCredentials, "credentials of the %s: %s", source, oneLine(err))
		}
	}
	// The quota of a project is what the calls of a user's own credentials count against: Google refuses some of them without one
	// (https://cloud.google.com/docs/quotas/set-quota-project). A service account has its own.
	c.Source, c.Caller, c.tokens, c.quota = source, says.Email, creds.TokenSource, cmp.Or(os.Getenv("GOOGLE_CLOUD_QUOTA_PROJECT"), says.Project)
	return nil
}
