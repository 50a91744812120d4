package party

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/dnsname"
)

// An upload is a relying party that holds a copy of the JWKS, which stays as it is until somebody uploads another one. A policy
// names it KIND-upload:PLACE among its relying parties.
const infix = "-upload:"

// longest bounds the name of an upload, in bytes.
const longest = 512

// Example is an upload, for people.
const Example = "gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/POOL/providers/PROVIDER"

// IsUpload reports whether a relying party is one that holds an upload.
func IsUpload(name string) bool { return strings.Contains(name, infix) }

// Upload returns the kind of an upload, by which anyone who uploads to it is chosen, and its place.
func Upload(name string) (kind, place string) {
	kind, place, _ = strings.Cut(name, infix)
	return kind, place
}

// uploads are the kinds of uploads that somebody in this version uploads to, and the form of a place of each. None of them is a URL: a
// key set chooses an object, and the environment of the uploading program chooses the server that gets a credential.
var uploads = []struct {
	kind, form string
	is         func(place string) bool
}{
	{"anthropic", "fdis_…, the ID of a federation issuer", regexp.MustCompile(`^fdis_[A-Za-z0-9]+$`).MatchString},
	{"databricks", "HOST/accounts/ID/[servicePrincipals/ID/]federationPolicies/ID",
		regexp.MustCompile(`^[a-z0-9.-]+/accounts/[a-z0-9-]+/(servicePrincipals/[0-9]+/)?federationPolicies/[A-Za-z0-9][A-Za-z0-9_-]*$`).MatchString},
	{"file", "NAME.json, with the name of the key set, in the directory of sync-keys --files", regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*\.json$`).MatchString},
	{"gcp", "projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER; write it with the project's number, " +
		"and POOL and PROVIDER are 4 to 32 of a-z, 0-9 and hyphens", isProvider},
	{"openai", "the ID of a workload identity provider", regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`).MatchString},
	{"vault", "HOST[:PORT]/auth/PATH, a JWT auth method", regexp.MustCompile(`^[a-z0-9.-]+(:[0-9]+)?/auth/[A-Za-z0-9][A-Za-z0-9_-]*(/[A-Za-z0-9][A-Za-z0-9_-]*)*$`).MatchString},
}

// UploadKinds returns the kinds of uploads that somebody in this version uploads to.
func UploadKinds() (kinds []string) {
	for _, u := range uploads {
		kinds = append(kinds, u.kind)
	}
	return kinds
}

// UploadForm returns the form of the places of a kind, for people.
func UploadForm(kind string) string {
	for _, u := range uploads {
		if u.kind == kind {
			return u.form
		}
	}
	return "PLACE"
}

// KnownUpload reports whether there is somebody in this version who uploads to a relying party.
func KnownUpload(name string) bool {
	kind, _ := Upload(name)
	return IsUpload(name) && slices.Contains(UploadKinds(), kind)
}

// Uploads returns those of the relying parties that hold an upload.
func Uploads(declared []string) []string {
	return slices.DeleteFunc(slices.Clone(declared), func(name string) bool { return !IsUpload(name) })
}

// WithUpload returns the relying parties with an upload in the place of the one that its kind is named after, which fetches
// nothing then.
func WithUpload(declared []string, upload string) []string {
	kind, _ := Upload(upload)
	return append(slices.DeleteFunc(slices.Clone(declared), func(name string) bool { return name == kind }), upload)
}

// UploadKeeps returns how long a relying party may go on by what it held before an upload, after that is read back: reading it
// back asks the control plane, and not the servers that check tokens.
//
// Nobody documents it. IAM says of its changes that they take two minutes as a rule, and seven or more at times, so that GCP
// counts as it does where it fetches: https://cloud.google.com/iam/docs/access-change-propagation
func UploadKeeps(upload string) time.Duration {
	if kind, _ := Upload(upload); KnownUpload(upload) {
		return Keeps(kind)
	}
	return unknown
}

// Check returns an error for what cannot be the name of a relying party. A kind of upload that is not known here may be one of a
// later version: it is read, and as nothing can be read back from it here, the gates stay closed.
func Check(name string) error {
	kind, place, upload := strings.Cut(name, infix)
	switch {
	case !dnsname.IsLabel(kind) || upload && (place == "" || len(name) > longest || strings.ContainsFunc(place, unprintable)):
		return fmt.Errorf("it is neither a name such as aws, gcp, entra, vault or kube-apiserver nor an upload, KIND-upload:PLACE, such as %s", Example)
	case !upload:
		return nil
	}
	for _, u := range uploads {
		if u.kind == kind && !u.is(place) {
			return fmt.Errorf("what follows %s%s is not %s", kind, infix, u.form)
		}
	}
	return nil
}

func unprintable(r rune) bool { return r <= ' ' || r > '~' }

// provider is the resource name of a provider of a workload identity pool. The project is a number: by its ID one provider would
// have two names, and a deleted project's ID may become another's.
//
// Source: https://cloud.google.com/iam/docs/reference/rest/v1/projects.locations.workloadIdentityPools.providers
var provider = regexp.MustCompile(`^projects/[1-9][0-9]{0,18}/locations/global/workloadIdentityPools/([^/]*)/providers/([^/]*)$`)

func isProvider(place string) bool {
	ids := provider.FindStringSubmatch(place)
	return ids != nil && IsPoolID(ids[1]) && IsPoolID(ids[2])
}

var poolID = regexp.MustCompile(`^[a-z0-9-]{4,32}$`)

// IsPoolID reports whether Google takes id as that of a workload identity pool or of a provider: 4 to 32 of a-z, 0-9 and hyphens, and
// not with the prefix gcp-, which Google keeps to itself
// (https://cloud.google.com/iam/docs/reference/rest/v1/projects.locations.workloadIdentityPools/create).
func IsPoolID(id string) bool { return poolID.MatchString(id) && !strings.HasPrefix(id, "gcp-") }
