package keystore

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ClusterID says which cluster it is: the UID of its namespace kube-system, which lives as long as the cluster does.
type ClusterID string

var clusterID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*$`)

// Check returns an error for what is not a UID.
func (id ClusterID) Check() error {
	if !clusterID.MatchString(string(id)) || len(id) > 64 {
		return fmt.Errorf("%q is not a UID", printable(string(id)))
	}
	return nil
}

// clusterAnnotation has the clusters of a key set, the one that is to sign first, with a space between two. It is an annotation and no
// member of the form: earlier versions keep it, and nothing that is published depends on it.
const clusterAnnotation = "keypost.dev/cluster"

// Enrolled is why enrolment changes a key set, in its history.
const Enrolled = "keypost enroll: by the cluster's own JWKS"

// Clusters returns whose keys a key set holds, as far as that was recorded: the cluster that is to sign, and behind it the one that it
// takes the place of.
func (s KeySet) Clusters() (ids []ClusterID) {
	for word := range strings.FieldsSeq(s.annotations[clusterAnnotation]) {
		ids = append(ids, ClusterID(word))
	}
	return ids
}

// IsOf reports whether a cluster's new keys may come into the key set: it is the one that is to sign, or a rotation under way takes
// them from one cluster to another, and it is either.
func (s KeySet) IsOf(id ClusterID) bool {
	i := slices.Index(s.Clusters(), id)
	return i == 0 || i == 1 && s.Rotation() != nil
}

// SetCluster records that a cluster is to sign. The one before stays behind it.
func (s KeySet) SetCluster(c Change, id ClusterID) (KeySet, error) {
	return s.transition(c, fmt.Sprintf("record cluster %s", id), func(n *KeySet, _ time.Time) error {
		was := slices.DeleteFunc(s.Clusters(), func(o ClusterID) bool { return o == id })
		n.setClusters(append([]ClusterID{id}, was[:min(1, len(was))]...)...)
		return id.Check()
	})
}

// setClusters replaces the record; none removes it.
func (s *KeySet) setClusters(ids ...ClusterID) {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = string(id)
	}
	all := maps.Clone(s.annotations)
	if delete(all, clusterAnnotation); len(ids) > 0 {
		if all == nil {
			all = map[string]string{}
		}
		all[clusterAnnotation] = strings.Join(words, " ")
	}
	s.annotations = all
}
