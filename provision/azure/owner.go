package azure

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/cloud"
)

// ownerTagPrefix is the beginning of ccoctl's tag. In Azure the name of a tag has no slash.
const ownerTagPrefix = "openshift.io_cloud-credential-operator_"

// workloadTag is on what is made for a workload of any cluster.
const workloadTag = "keypost.dev_owned"

// owner is whom a thing belongs to: by its tag, and a custom role, which has no tags, by its description.
type owner struct {
	mark        cloud.Mark
	description string
}

// installation returns the owner of what ccoctl and keypost make under a name. Tag and description are ccoctl's, so that either
// tool deletes what the other made.
func installation(name string) owner {
	return owner{cloud.Mark{Key: ownerTagPrefix + name, Value: ccoctl.Owned}, "Custom role for OpenShift. Owned by: " + name}
}

// workloads returns the owner of what is made for workloads of any cluster in a resource group. keypost never deletes it. A custom
// role is found by its name in the whole subscription: its description names the group, so that one group's workload does not
// rewrite the role of another's.
func workloads(group string) owner {
	return owner{cloud.Mark{Key: workloadTag, Value: ccoctl.Owned},
		"Custom role for a workload. Made by keypost azure create-identity in resource group " + strings.ToLower(group)}
}

// tags returns the owner's tag with others.
func (o owner) tags(others map[string]string) map[string]string {
	all := maps.Clone(others)
	if all == nil {
		all = map[string]string{}
	}
	all[o.mark.Key] = o.mark.Value
	return all
}

// owns reports whether a thing with these tags is the owner's.
func (o owner) owns(tags map[string]string) bool { return o.mark.On(named(tags, o.mark.Key)) }

// refuse returns the error for a thing that is somebody else's.
func (o owner) refuse(thing string, tags map[string]string) error {
	tags = named(tags, o.mark.Key)
	return problem(NotOwned, "%s", o.mark.Absent(thing, tags, strings.Join(owners(tags), ", ")))
}

// owners returns the names of the owners that tags show.
func owners(tags map[string]string) []string {
	var names []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if tags[k] != ccoctl.Owned {
			continue
		}
		if strings.EqualFold(k, workloadTag) {
			names = append(names, "create-identity")
		} else if len(k) > len(ownerTagPrefix) && strings.EqualFold(k[:len(ownerTagPrefix)], ownerTagPrefix) {
			names = append(names, k[len(ownerTagPrefix):])
		}
	}
	return names
}

// named returns tags with the one under key spelled like key: Azure takes two names for one that differ in letter case alone,
// and may give back either (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources).
func named(tags map[string]string, key string) map[string]string {
	for k, v := range tags {
		if k != key && strings.EqualFold(k, key) {
			tags = maps.Clone(tags)
			delete(tags, k)
			tags[key] = v
			return tags
		}
	}
	return tags
}

// mergeTags returns have with want, and what that changes. A write replaces all tags, so that the others must be in it.
func mergeTags(have, want map[string]string) (merged map[string]string, diff []string) {
	merged = map[string]string{}
	maps.Copy(merged, have)
	for _, k := range slices.Sorted(maps.Keys(want)) {
		merged = named(merged, k)
		was, there := merged[k]
		switch {
		case there && was == want[k]:
			continue
		case there:
			diff = append(diff, fmt.Sprintf("- tag %s=%s", k, was))
		}
		diff = append(diff, fmt.Sprintf("+ tag %s=%s", k, want[k]))
		merged[k] = want[k]
	}
	return merged, diff
}
