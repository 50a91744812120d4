package credrequest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
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

// manifest is a document while it is read: its place, for errors, and the first error. Once err is set, the results of its
// methods mean nothing.
type manifest struct {
	cloud Cloud
	place string
	err   error
}

// value is a part of a document, as package json decodes it, and the path that leads to it; name is its last step.
type value struct {
	path, name string
	raw        any
}

func (m *manifest) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf("%s: %s", m.place, fmt.Sprintf(format, args...))
	}
}

// request reads a document. If the document is skipped, why is the line that reports it.
func (m *manifest) request(root value, techPreview bool) (r Request, why string) {
	if why = m.foreign(root); why != "" || m.err != nil {
		return Request{}, why
	}
	metadata := m.at(root, "metadata")
	r.Namespace, r.Name = m.text(m.at(metadata, "namespace")), m.name(m.at(metadata, "name"))
	if r.Namespace != "" {
		r.Namespace = m.label(m.at(metadata, "namespace"))
	}
	m.place += ", CredentialsRequest " + r.String()
	if why = m.unwanted(m.at(metadata, "annotations"), r, techPreview); why != "" || m.err != nil {
		return Request{}, why
	}
	spec := m.at(root, "spec")
	provider := m.at(spec, "providerSpec")
	if why = m.otherCloud(m.at(provider, "kind"), r); why != "" || m.err != nil {
		return Request{}, why
	}
	if v := m.at(provider, "apiVersion"); m.text(v) != "" && m.text(v) != apiVersion {
		m.fail("%s: %q is a version that this program does not know; it knows %s", v.path, m.text(v), apiVersion)
	}
	m.fill(&r, spec, provider)
	return r, ""
}

// foreign returns why a document is skipped that is not a CredentialsRequest, or "". The kind counts only together with its
// group; ccoctl looks at neither and makes a role for whatever has the right shape.
func (m *manifest) foreign(root value) string {
	if _, ok := root.raw.(map[string]any); !ok {
		m.fail("it is not a manifest: it has no apiVersion and kind")
		return ""
	}
	k, v := m.text(m.at(root, "kind")), m.text(m.at(root, "apiVersion"))
	group, _, _ := strings.Cut(v, "/")
	switch {
	case m.err != nil:
		return ""
	case k == "List" || k == kind+"List":
		m.fail("it is a %s: write each item that it holds as a document of its own", k)
	case k != kind || group != apiGroup:
		return fmt.Sprintf("Ignoring %s: it is a %s of %s, not a %s of %s", m.place, orNothing(k), orNothing(v), kind, apiVersion)
	case v != apiVersion:
		m.fail("apiVersion: %q is a version that this program does not know; it knows %s", printable(v), apiVersion)
	}
	return ""
}

func orNothing(s string) string {
	if s == "" {
		return "(nothing)"
	}
	return printable(s)
}

// unwanted returns why a request is skipped because of its annotations, or "".
func (m *manifest) unwanted(annotations value, r Request, techPreview bool) string {
	if m.annotation(annotations, deletion) == "true" {
		return fmt.Sprintf("Ignoring CredentialsRequest %s as it is marked for in-cluster deletion", r)
	}
	sets, wanted := m.annotation(annotations, featureSet), defaultSet
	if m.annotation(annotations, featureGate) == previewSet {
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
		return fmt.Sprintf("Ignoring CredentialsRequest %s with tech-preview value %s", r, printable(sets))
	}
	return fmt.Sprintf("Ignoring CredentialsRequest %s with tech-preview annotation", r)
}

// annotation returns an annotation's value. A boolean is accepted: quotes around true are easily forgotten.
func (m *manifest) annotation(annotations value, key string) string {
	v := m.at(annotations, key)
	if b, ok := v.raw.(bool); ok {
		return fmt.Sprint(b)
	}
	return m.text(v)
}

func (m *manifest) otherCloud(provider value, r Request) string {
	switch k := m.text(provider); {
	case k == "":
		m.fail("%s: it is missing; a request for %s has %s", provider.path, m.cloud, m.cloud.kind())
	case strings.EqualFold(k, m.cloud.kind()) && k != m.cloud.kind(): // else a slip of the keyboard passes for another cloud
		m.fail("%s: it is %s; write %s", provider.path, printable(k), m.cloud.kind())
	case k != m.cloud.kind():
		return fmt.Sprintf("Ignoring CredentialsRequest %s: it is for another cloud (%s)", r, printable(k))
	}
	return ""
}

// The name of a Secret's manifest is known before anything is made, and Kubernetes allows a name of 253 bytes: a file that cannot be
// written would show only when the cloud has been changed.
const (
	secretEnd   = "-credentials.yaml" // what the name ends in, as ccoctl has it
	longestFile = 255                 // bytes, of Linux (NAME_MAX) and macOS
)

func (m *manifest) fill(r *Request, spec, provider value) {
	secret := m.at(spec, "secretRef")
	r.SecretNamespace, r.SecretName = m.label(m.at(secret, "namespace")), m.name(m.at(secret, "name"))
	if n := len(r.SecretNamespace + "-" + r.SecretName + secretEnd); n > longestFile {
		m.fail("%s: the file of this Secret's manifest, NAMESPACE-NAME%s, would have a name of %d bytes, and file systems allow %d: shorten the name", secret.path, secretEnd, n, longestFile)
	}
	r.CloudTokenPath = m.matching(m.at(spec, "cloudTokenPath"), absolutePath.MatchString, "the absolute path of a file")
	accounts := m.at(spec, "serviceAccountNames")
	for _, v := range m.items(accounts) {
		r.ServiceAccounts = append(r.ServiceAccounts, m.name(v))
	}
	switch m.cloud {
	case AWS:
		r.AWS = m.aws(provider)
	case GCP:
		r.GCP = m.gcp(provider)
	case Azure:
		r.Azure = m.azure(provider)
	}
	if !r.HasIdentity() && len(r.ServiceAccounts) == 0 { // who has made an identity by hand, has named those who may use it too
		m.fail("%s: it is empty; name the service accounts in %s that may %s", accounts.path, r.SecretNamespace, m.cloud.use())
	}
}

var absolutePath = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`) // goes into an ini file, JSON and YAML
