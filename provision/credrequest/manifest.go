package credrequest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/internal/strictjson"
)

const (
	apiGroup   = "cloudcredential.openshift.io"
	apiVersion = apiGroup + "/v1"
	kind       = "CredentialsRequest"
)

// Annotations that decide whether a manifest counts; the cluster-version operator knows them all.
const (
	deletion    = "release.openshift.io/delete"
	featureSet  = "release.openshift.io/feature-set"  // comma-separated: any of them
	featureGate = "release.openshift.io/feature-gate" // up to 4.11: the name of a set

	defaultSet = "Default"
	previewSet = "TechPreviewNoUpgrade"
)

// object is the name of a Kubernetes object.
type object struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// manifest is a CredentialsRequest as far as every cloud reads it.
type manifest struct {
	Metadata struct {
		object
		Annotations map[string]any `json:"annotations"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
}

// spec is what stands under the same names for every cloud.
type spec struct {
	SecretRef           object          `json:"secretRef"`
	ServiceAccountNames []string        `json:"serviceAccountNames"`
	CloudTokenPath      string          `json:"cloudTokenPath"`
	ProviderSpec        json.RawMessage `json:"providerSpec"`
}

// head is what says how the rest is to be read.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// reader reads one document, and keeps the first error with the place of the document. Once err is set, its results mean nothing.
type reader struct {
	cloud Cloud
	place string
	err   error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %s", r.place, fmt.Sprintf(format, args...))
	}
}

// decode reads JSON, which stands at a path of the document. Unknown members are passed over.
func (r *reader) decode(path string, data []byte, into any) {
	err := strictjson.Decode(data, into)
	wrong, is := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case err == nil:
	case is:
		at := strings.Trim(path+"."+wrong.Field, ".")
		r.fail("%s: its type is %s; write %s", printable(at), wrong.Value, wanted(wrong.Type.Kind()))
	default:
		r.fail("%s", printable(err.Error()))
	}
}

// wanted says what is to be written in YAML.
func wanted(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "text, in quotes if need be"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	default:
		return "a mapping"
	}
}

// has holds the text at a path against its form, which what describes. Empty text is none.
func (r *reader) has(path, s string, form func(string) bool, what string) {
	if s != "" && !form(s) {
		r.fail("%s: it is %q, which is not %s", path, shorten(s), what)
	}
}

// needs is has for text that must be there.
func (r *reader) needs(path, s string, form func(string) bool, what string) {
	if s == "" {
		r.fail("%s: it is missing", path)
	}
	r.has(path, s, form, what)
}

// each is needs for the elements of a list.
func (r *reader) each(path string, list []string, form func(string) bool, what string) {
	for i, s := range list {
		r.needs(fmt.Sprintf("%s[%d]", path, i), s, form, what)
	}
}

const (
	aNamespace = "the name of a namespace"
	aName      = "a name that Kubernetes allows, of at most 253 characters"
)

// request reads a document. If it is skipped, why is the line that reports it.
func (r *reader) request(document []byte, techPreview bool) (q Request, why string) {
	if why = r.foreign(document); why != "" || r.err != nil {
		return Request{}, why
	}
	var m manifest
	r.decode("", document, &m)
	q.Namespace, q.Name = m.Metadata.Namespace, m.Metadata.Name
	r.needs("metadata.name", q.Name, dnsname.IsSubdomain, aName)
	r.has("metadata.namespace", q.Namespace, dnsname.IsLabel, aNamespace)
	r.place += ", CredentialsRequest " + q.String()
	if why = r.unwanted(m.Metadata.Annotations, q, techPreview); why != "" || r.err != nil {
		return Request{}, why
	}
	if why = r.otherCloud(m.Spec, q); why != "" || r.err != nil {
		return Request{}, why
	}
	r.fill(&q, m.Spec)
	return q, ""
}

// foreign returns why a document is skipped that is not a CredentialsRequest, or "". The kind counts only together with its
// group; ccoctl looks at neither and makes a role for whatever has the right shape.
func (r *reader) foreign(document []byte) string {
	if !bytes.HasPrefix(document, []byte("{")) {
		r.fail("it is not a manifest: it has no apiVersion and kind")
		return ""
	}
	var head head
	r.decode("", document, &head)
	group, _, _ := strings.Cut(head.APIVersion, "/")
	switch {
	case r.err != nil:
		return ""
	case head.Kind == "List" || head.Kind == kind+"List":
		r.fail("it is a %s: write each item that it holds as a document of its own", head.Kind)
	case head.Kind != kind || group != apiGroup:
		return fmt.Sprintf("Ignoring %s: it is a %s of %s, not a %s of %s", r.place, orNothing(head.Kind), orNothing(head.APIVersion), kind, apiVersion)
	default:
		r.has("apiVersion", head.APIVersion, isVersion, aVersion)
	}
	return ""
}

func orNothing(s string) string {
	if s == "" {
		return "(nothing)"
	}
	return printable(s)
}

func isVersion(s string) bool { return s == apiVersion }

const aVersion = "a version that this program knows; it knows " + apiVersion

// unwanted returns why a request is skipped because of its annotations, or "".
func (r *reader) unwanted(annotations map[string]any, q Request, techPreview bool) string {
	if r.annotation(annotations, deletion) == "true" {
		return fmt.Sprintf("Ignoring CredentialsRequest %s as it is marked for in-cluster deletion", q)
	}
	sets, wanted := r.annotation(annotations, featureSet), defaultSet
	if r.annotation(annotations, featureGate) == previewSet {
		sets = previewSet
	}
	if techPreview {
		wanted = previewSet
	}
	named := func(set string) bool { return strings.TrimSpace(set) == wanted }
	switch {
	case sets == "" || slices.ContainsFunc(strings.Split(sets, ","), named):
		return ""
	case techPreview:
		return fmt.Sprintf("Ignoring CredentialsRequest %s with tech-preview value %s", q, printable(sets))
	}
	return fmt.Sprintf("Ignoring CredentialsRequest %s with tech-preview annotation", q)
}

// annotation returns an annotation's value. A boolean is accepted: quotes around true are easily forgotten.
func (r *reader) annotation(annotations map[string]any, key string) string {
	switch v := annotations[key].(type) {
	case nil:
	case string:
		return v
	case bool:
		return fmt.Sprint(v)
	default:
		r.fail("metadata.annotations.%s: write text, in quotes if need be", key)
	}
	return ""
}

func (r *reader) otherCloud(spec json.RawMessage, q Request) string {
	var in struct {
		ProviderSpec head `json:"providerSpec"`
	}
	if spec != nil {
		r.decode("spec", spec, &in)
	}
	switch k := in.ProviderSpec.Kind; {
	case k == "":
		r.fail("%s.kind: it is missing; a request for %s has %s", inProvider, r.cloud, r.cloud.kind())
	case strings.EqualFold(k, r.cloud.kind()) && k != r.cloud.kind(): // else a slip of the keyboard passes for another cloud
		r.fail("%s.kind: it is %s; write %s", inProvider, printable(k), r.cloud.kind())
	case k != r.cloud.kind():
		return fmt.Sprintf("Ignoring CredentialsRequest %s: it is for another cloud (%s)", q, printable(k))
	}
	r.has(inProvider+".apiVersion", in.ProviderSpec.APIVersion, isVersion, aVersion)
	return ""
}

const inProvider = "spec.providerSpec"

func (r *reader) fill(q *Request, text json.RawMessage) {
	var m spec
	r.decode("spec", text, &m)
	q.SecretNamespace, q.SecretName = m.SecretRef.Namespace, m.SecretRef.Name
	r.needs("spec.secretRef.namespace", q.SecretNamespace, dnsname.IsLabel, aNamespace)
	r.needs("spec.secretRef.name", q.SecretName, dnsname.IsSubdomain, aName)
	q.CloudTokenPath = m.CloudTokenPath
	r.has("spec.cloudTokenPath", q.CloudTokenPath, absolutePath.MatchString, "the absolute path of a file")
	q.ServiceAccounts = m.ServiceAccountNames
	r.each("spec.serviceAccountNames", q.ServiceAccounts, dnsname.IsSubdomain, aName)
	switch r.cloud {
	case AWS:
		q.AWS = r.aws(m.ProviderSpec)
	case GCP:
		q.GCP = r.gcp(m.ProviderSpec)
	case Azure:
		q.Azure = r.azure(m.ProviderSpec)
	}
	if !q.HasIdentity() && len(q.ServiceAccounts) == 0 { // who has made an identity by hand, has named those who may use it too
		r.fail("spec.serviceAccountNames: it is empty; name the service accounts in %s that may %s", q.SecretNamespace, r.cloud.use())
	}
}

var absolutePath = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`) // goes into an ini file, JSON and YAML
