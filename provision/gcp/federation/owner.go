package federation

import (
	"regexp"
	"strings"

	"github.com/keypost/keypost/provision/gcp/rest"
)

// Made is how the descriptions begin of all that ccoctl makes; keypost's begin so too, so that either deletes what the other
// made.
const Made = "Created By OpenShift ccoctl"

// descriptionLimit is Google's, in bytes.
const descriptionLimit = 256

// Owner is the installation, or the tool, that a thing belongs to by the end of its description. The zero Owner owns nothing.
type Owner struct{ name, suffix string }

// What comes before an installation's name at the end of descriptions, before the name of the key set whose keys a provider has a copy of
// where that is not the one of the installation's name, and at the end of what is for workloads.
const (
	installationSuffix = "; installation "
	keysMark           = "; keys of "
	workloadSuffix     = "; keypost, for a workload"
)

// markForm matches what an owner has put to the end of a description: the key set, if it names one, and the installation.
var markForm = regexp.MustCompile(`(?:` + keysMark + `([a-z0-9-]{1,63}))?` + installationSuffix + `([a-z0-9-]{1,32})$`)

// markOf returns the names of the key set and the installation at the end of a description; empty where there are none.
func markOf(description string) (keySet, installation string) {
	if m := markForm.FindStringSubmatch(description); m != nil {
		return m[1], m[2]
	}
	return "", ""
}

// unmarked returns a description without its owner's mark, and with nothing in it that reads like one.
func unmarked(description string) string {
	text := strings.TrimSuffix(markForm.ReplaceAllString(description, ""), workloadSuffix)
	return strings.NewReplacer(installationSuffix, ", of ", keysMark, ", keys of ").Replace(text)
}

// Installation is the name of the owner's installation; empty of what is for workloads.
func (o Owner) Installation() string { return o.name }

// OwnedBy returns the owner of what is made for the installation of this name.
func OwnedBy(name string) Owner { return Owner{name: name, suffix: installationSuffix + name} }

// OwnedByKeypost returns the owner of accounts for workloads of any cluster. No installation's deletion deletes them.
func OwnedByKeypost() Owner { return Owner{suffix: workloadSuffix} }

// Owns reports whether a description ends as the owner's do.
func (o Owner) Owns(description string) bool {
	return o.suffix != "" && strings.HasSuffix(description, o.suffix)
}

// Takes reports whether a description is the owner's, or ccoctl's, which does not say for which installation it made a thing.
func (o Owner) Takes(description string) bool {
	return o.Owns(description) || strings.HasPrefix(description, Made) && !strings.Contains(description, installationSuffix)
}

// takesNamed is takes for a thing of an ID: of ccoctl's only one that bears the installation's name. By nothing but ccoctl's word any
// installation would be its owner.
func (o Owner) takesNamed(id, description string) bool {
	return o.Owns(description) || id == o.name && o.Takes(description)
}

// holds reports whether a provider is to have the keys of the key set of the owner's name. Where its description names a key set, only
// that one: anyone who writes the one of the installation's name has no say in it.
func (o Owner) holds(id, description string) bool {
	if keySet, _ := markOf(description); keySet != "" {
		return keySet == o.name
	}
	return o.takesNamed(id, description)
}

// Describe returns a description that the owner takes. What it said before stays, as far as there is room, but for whose it was.
func (o Owner) Describe(text string) string {
	switch {
	case o.Owns(text), o.suffix == "" && o.Takes(text):
		return text
	case o.suffix == "":
		return rest.Cut(Made+", which took it over: "+unmarked(text), descriptionLimit)
	}
	return o.marked(text, "")
}

// marked returns a description that ends with the owner's mark, and with the key set whose keys the provider is given; empty is the one of
// the installation's name.
func (o Owner) marked(text, keySet string) string {
	end := o.suffix
	if keySet != "" && keySet != o.name {
		end = keysMark + keySet + end
	}
	return rest.Cut(unmarked(text), descriptionLimit-len(end)) + end
}

// NotOwned is the error for a thing that is somebody else's.
func (o Owner) NotOwned(thing, name, description string) error {
	return rest.Problemf(rest.NotOwned, "%s %s is somebody else's: its description is %q", thing, name, description)
}
