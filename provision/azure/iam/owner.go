package iam

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/cloud"
)

// ownerTagPrefix is the beginning of ccoctl's tag. In Azure the name of a tag has no slash.
const ownerTagPrefix = "openshift.io_cloud-credential-operator_"

// workloadTag is on what is made for a workload of any cluster.
const workloadTag = "keypost.dev_owned"

// Owner is whom a thing belongs to: by its tag, and a custom role, which has no tags, by its description.
type Owner struct {
	Tag         cloud.OwnerTag
	description string
}

// Installation returns the owner of what ccoctl and keypost make under a name. Tag and description are ccoctl's, so that either
// tool deletes what the other made.
func Installation(name string) Owner {
	return Owner{cloud.OwnerTag{Key: ownerTagPrefix + name, Value: ccoctl.Owned}, "Custom role for OpenShift. Owned by: " + name}
}

// Workloads returns the owner of what is made for workloads of any cluster in a resource group. keypost never deletes it. A custom
// role is found by its name in the whole subscription: its description names the group, so that one group's workload does not
// rewrite the role of another's.
func Workloads(group string) Owner {
	return Owner{cloud.OwnerTag{Key: workloadTag, Value: ccoctl.Owned},
		"Custom role for a workload. Made by keypost azure create-identity in resource group " + Folded(group)}
}

// tags returns the owner's tag with others.
func (o Owner) tags(others map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, others)
	all[o.Tag.Key] = o.Tag.Value
	return all
}

// owns reports whether a thing with these tags is the owner's.
func (o Owner) owns(tags map[string]string) bool { return o.Tag.On(named(tags, o.Tag.Key)) }

// refuse returns the error for a thing that is somebody else's.
func (o Owner) refuse(thing string, tags map[string]string) error {
	tags = named(tags, o.Tag.Key)
	return arm.Refuse(arm.NotOwned, "%s", o.Tag.Absent(thing, tags, strings.Join(owners(tags), ", ")))
}

// shared says that a thing with these tags belongs to several owners, as after --adopt, so that it goes with none of them; empty if it
// does not.
func shared(thing string, tags map[string]string) string {
	names := owners(tags)
	if len(names) < 2 {
		return ""
	}
	return fmt.Sprintf("%s belongs to %s: it is not deleted for one of them", thing, strings.Join(names, ", "))
}

// owners returns the names of the owners that tags show.
func owners(tags map[string]string) []string {
	var names []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if tags[k] != ccoctl.Owned {
			continue
		}
		if SameName(k, workloadTag) {
			names = append(names, "create-identity")
		} else if len(k) > len(ownerTagPrefix) && SameName(k[:len(ownerTagPrefix)], ownerTagPrefix) {
			names = append(names, k[len(ownerTagPrefix):])
		}
	}
	return names
}

// named returns tags with the one under key spelled like key: Azure takes two names for one that differ only in letter case,
// and may give back either (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources).
func named(tags map[string]string, key string) map[string]string {
	for k, v := range tags {
		if k != key && SameName(k, key) {
			tags = maps.Clone(tags)
			delete(tags, k)
			tags[key] = v
			return tags
		}
	}
	return tags
}

// missingTags returns those of want that have does not contain, or has with another value, and what writing them changes.
func missingTags(have, want map[string]string) (missing map[string]string, diff []string) {
	missing = map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		was, there := named(have, k)[k]
		switch {
		case there && was == want[k]:
			continue
		case there:
			diff = append(diff, fmt.Sprintf("- tag %s=%s", k, was))
		}
		diff = append(diff, fmt.Sprintf("+ tag %s=%s", k, want[k]))
		missing[k] = want[k]
	}
	return missing, diff
}

// tagSteps returns the step that gives a group or an identity, by its ID, the tags that it does not have; none if it has them all.
func (r *Run) tagSteps(id, line string, have, want map[string]string) []cloud.Step {
	missing, diff := missingTags(have, want)
	if len(diff) == 0 {
		return nil
	}
	return []cloud.Step{{Key: "tag", Line: line, Diff: diff, Call: r.patchTags(id, "Merge", missing)}}
}

// patchTags returns the call that merges tags into those of a group or an identity, by its ID, or deletes them there. The other tags stay,
// also those that somebody else writes at the same time: a PATCH of the thing itself would replace them all
// (https://learn.microsoft.com/rest/api/resources/tags/update-at-scope).
func (r *Run) patchTags(id, operation string, tags map[string]string) func(context.Context) (cloud.Answer, error) {
	return r.Patch(tagsOf.At(id+"/providers/Microsoft.Resources/tags/default"),
		map[string]any{"operation": operation, "properties": map[string]any{"tags": tags}})
}

// SameName reports whether two names or IDs differ at most in letter case.
func SameName(a, b string) bool { return strings.EqualFold(a, b) }

// Folded returns a name in the form that it shares with those that are the same to SameName.
func Folded(s string) string { return strings.ToLower(s) }
