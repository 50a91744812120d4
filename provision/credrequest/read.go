// Package credrequest reads CredentialsRequest manifests (cloudcredential.openshift.io/v1). With these, OpenShift's
// components ask for permissions in the cloud, and name the Secret from which they read their credentials. It promises
// to check every manifest of a directory before it returns one, and to report every manifest that it skips.
package credrequest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/internal/strictyaml"
	"github.com/keypost/keypost/internal/text"
)

// maxFile bounds a file of manifests, in bytes: several times what a release holds for all clouds together.
const maxFile = 1 << 20

// ReadDir reads the requests for a cloud of a directory in the order of file names, as ccoctl does: files named *.yaml and *.yml
// (of several YAML documents each; JSON is YAML), no subdirectories. skipped has a line for each manifest and file that was
// skipped, with the reason, in the words of ccoctl's log where it has any. The error
// has a line for each document that is wrong, and no request is returned then.
//
// With techPreview, requests count that are annotated for the feature set TechPreviewNoUpgrade, as with ccoctl's
// --enable-tech-preview. They count whatever feature gates they name, as with ccoctl: a role that nobody assumes harms
// nobody, and a component without its role does not start.
func ReadDir(cloud Cloud, dir string, techPreview bool) (requests []Request, skipped []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, e := range entries {
		if why := leftOut(e); why != "" {
			skipped = append(skipped, fmt.Sprintf("Ignoring %s: %s", printable(e.Name()), why))
			continue
		}
		if !isManifest(e.Name()) {
			continue
		}
		data, err := regular.Read(filepath.Join(dir, e.Name()), maxFile)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		rs, lines, err := Read(cloud, e.Name(), data, techPreview)
		requests, skipped, errs = append(requests, rs...), append(skipped, lines...), append(errs, err)
	}
	if err := errors.Join(append(errs, unique(requests))...); err != nil {
		return nil, nil, err
	}
	return requests, skipped, nil
}

func isManifest(base string) bool {
	return strings.HasSuffix(base, ".yaml") || strings.HasSuffix(base, ".yml")
}

// leftOut returns why a directory entry is not read, or "". Hidden ones that are not manifests are not worth a line: a mounted
// ConfigMap and a Git checkout have them.
func leftOut(e os.DirEntry) string {
	switch {
	case e.IsDir() && !strings.HasPrefix(e.Name(), "."):
		return "subdirectories are not read"
	case !isManifest(e.Name()) && !strings.HasPrefix(e.Name(), "."):
		return "only files whose names end in .yaml or .yml are read"
	}
	return ""
}

// Read reads the requests of one file; name is its base name. See [ReadDir].
func Read(cloud Cloud, name string, data []byte, techPreview bool) (requests []Request, skipped []string, err error) {
	docs, err := documents(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", printable(name), err)
	}
	if len(docs) == 0 {
		return nil, []string{fmt.Sprintf("Ignoring %s: it is empty or holds only comments", printable(name))}, nil
	}
	var errs []error
	for i, doc := range docs {
		in := reader{cloud: cloud, place: fmt.Sprintf("document %d of %s", i+1, printable(name))}
		r, why := in.request(doc, techPreview)
		switch {
		case in.err != nil:
			errs = append(errs, in.err)
		case why != "":
			skipped = append(skipped, why)
		default:
			r.File = name
			requests = append(requests, r)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	return requests, skipped, nil
}

// documents returns the YAML documents of a stream as JSON. They end where they end for ccoctl. The reader is strict: of a key that
// is written twice in one mapping, either value may be the one that was meant. A document that is empty or holds only comments is
// left out.
func documents(data []byte) ([][]byte, error) {
	var docs [][]byte
	stream := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		part, err := stream.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		var doc []byte
		if err == nil {
			doc, err = strictyaml.ToJSON(part, maxFile)
		}
		switch {
		case errors.Is(err, strictyaml.ErrEmpty):
		case err != nil:
			return nil, fmt.Errorf("document %d cannot be read: %s", len(docs)+1, printable(err.Error()))
		default:
			docs = append(docs, doc)
		}
	}
}

// unique returns an error for requests with the same name of a Secret manifest, which joins namespace and name with a
// hyphen that both may contain. They would overwrite each other's manifest, and share one role, with the trust of the one
// and the permissions of the other.
func unique(requests []Request) error {
	var errs []error
	first := map[string]Request{}
	for _, r := range requests {
		key := r.SecretNamespace + "-" + r.SecretName
		f, taken := first[key]
		if !taken {
			first[key] = r
			continue
		}
		errs = append(errs, fmt.Errorf("%s (%s) and %s (%s) ask for Secrets with one manifest name, %s/%s and %s/%s: remove or rename one",
			printable(f.File), f, printable(r.File), r, f.SecretNamespace, f.SecretName, r.SecretNamespace, r.SecretName))
	}
	return errors.Join(errs...)
}

// String returns namespace/name, as ccoctl logs it.
func (r Request) String() string { return r.Namespace + "/" + r.Name }

// shorten cuts long text and changes nothing else, for %q: a space at its end may be what is wrong with it.
func shorten(s string) string {
	if r := []rune(s); len(r) > 200 {
		return string(r[:200]) + "…"
	}
	return s
}

// printable returns text from a file in a form that is safe for one line of a terminal.
func printable(s string) string { return text.OneLine(s, 200) }

// Cloud is a cloud whose requests are read.
type Cloud string

// The clouds, under the names that providerSpec.kind begins with.
const (
	AWS   Cloud = "AWS"
	GCP   Cloud = "GCP"
	Azure Cloud = "Azure"
)

// kind returns the kind of the cloud's providerSpec.
func (c Cloud) kind() string { return string(c) + "ProviderSpec" }

// use returns what a service account does with an identity of the cloud, for messages.
func (c Cloud) use() string {
	switch c {
	case GCP:
		return "impersonate the Google service account"
	case Azure:
		return "use the identity"
	}
	return "assume the role"
}

// Request is a CredentialsRequest for one cloud. Its names are valid in Kubernetes, and so in the names of files, roles and
// subjects.
type Request struct {
	File            string // base name of its file
	Namespace, Name string // its own
	SecretNamespace string // namespace of the component: of its Secret and of its service accounts
	SecretName      string
	ServiceAccounts []string // names; empty only if HasIdentity
	CloudTokenPath  string   // absolute path of the token in the component's pods; empty for the usual one

	// What it asks of the cloud that was asked for. The others are zero.
	AWS   AWSSpec
	GCP   GCPSpec
	Azure AzureSpec
}

// HasIdentity reports whether the request names an identity that exists, as operators of OLM do, so that only its Secret is to
// be made.
func (r Request) HasIdentity() bool {
	return r.AWS.RoleARN != "" || r.GCP.ServiceAccountEmail != "" || r.Azure.ClientID != ""
}
