package awsiam

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/cloud"
)

const (
	keypostKey = "keypost.dev/owned"
	movedAtKey = "keypost.dev/moved-at"
)

// Owner is the installation, or the tool, that a provider or a role belongs to by its tags. The zero Owner owns nothing.
type Owner struct {
	key  string
	name string
}

// OwnedBy returns the owner of what ccoctl and keypost make for the installation of this name: the cluster's provider and
// roles. The tags are ccoctl's, so that either tool deletes what the other made.
func OwnedBy(name string) Owner { return Owner{key: ccoctl.OwnerTagPrefix + name, name: name} }

// OwnedByKeypost returns the owner of roles for workloads of any cluster, made by keypost or adopted. keypost never deletes
// them.
func OwnedByKeypost() Owner { return Owner{key: keypostKey} }

// ownerTag returns the tag.
func (o Owner) ownerTag() cloud.OwnerTag { return cloud.OwnerTag{Key: o.key, Value: ccoctl.Owned} }

// Owns reports whether these tags are the owner's, and no other owner's: what two own, neither changes.
func (o Owner) Owns(tags map[string]string) bool {
	return o.ownerTag().On(tags) && o.others(tags) == ""
}

// String returns the tag, KEY=VALUE.
func (o Owner) String() string { return o.ownerTag().String() }

// tags returns tags in ccoctl's order: the owner's, then the others sorted.
func (o Owner) tags(others map[string]string) []types.Tag {
	out := []types.Tag{tag(o.key, ccoctl.Owned)}
	if o.name != "" {
		out = append(out, tag("Name", o.name))
	}
	for _, k := range slices.Sorted(maps.Keys(others)) {
		out = append(out, tag(k, others[k]))
	}
	return out
}

func tag(key, value string) types.Tag {
	return types.Tag{Key: aws.String(key), Value: aws.String(value)}
}

func tagMap(tags []types.Tag) map[string]string {
	out := make(map[string]string, len(tags))
	for _, t := range tags {
		out[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return out
}

// others returns the names of the other owners in these tags, for messages.
func (o Owner) others(tags map[string]string) string {
	var names []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if k == o.key || tags[k] != ccoctl.Owned {
			continue
		}
		if k == keypostKey {
			names = append(names, "create-role")
		} else if name, ok := strings.CutPrefix(k, ccoctl.OwnerTagPrefix); ok {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// mayTake returns an error for a thing that is not the owner's, unless it is to be adopted and has no other owner's tag.
func (o Owner) mayTake(what string, tags map[string]string, adopt bool) error {
	switch {
	case o.others(tags) != "":
		return problem(OthersThing, "%w", o.notOurs(what, tags))
	case adopt || o.Owns(tags):
		return nil
	}
	return problem(NotOwned, "%w", o.notOurs(what, tags))
}

// notOurs returns the error for a thing without the owner's tag, or with another owner's too.
func (o Owner) notOurs(what string, tags map[string]string) error {
	if o.ownerTag().On(tags) {
		return fmt.Errorf("%s belongs to %s too", what, o.others(tags))
	}
	return errors.New(o.ownerTag().Absent(what, tags, o.others(tags)))
}
