package fakeaws

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keypost/keypost/test/fakecloud"
)

// profile is an instance profile: what gives an EC2 instance the one role in it. A role in one cannot be deleted
// (https://docs.aws.amazon.com/IAM/latest/APIReference/API_DeleteRole.html).
type profile struct {
	name, id string
	role     string // name; empty for none
}

func (w world) profilesOf(role string) []profile {
	var found []profile
	for _, k := range slices.Sorted(maps.Keys(w.profiles)) {
		if strings.EqualFold(w.profiles[k].role, role) {
			found = append(found, w.profiles[k])
		}
	}
	return found
}

func (q *request) profile() (profile, error) {
	name := q.in.text["InstanceProfileName"]
	p, ok := q.world.profiles[strings.ToLower(name)]
	if !ok {
		return profile{}, noSuchEntity("Instance Profile %s cannot be found.", name)
	}
	return p, nil
}

func (w *world) setProfile(p profile) {
	w.profiles = fakecloud.With(w.profiles, strings.ToLower(p.name), p)
}

type profileXML struct {
	Path                string
	InstanceProfileName string
	InstanceProfileId   string
	Arn                 string
	CreateDate          string
	Roles               members[roleXML]
}

func (q *request) profileXML(p profile) profileXML {
	x := profileXML{Path: "/", InstanceProfileName: p.name, InstanceProfileId: p.id, Arn: q.arn("iam", "instance-profile/"+p.name),
		CreateDate: timestamp(q.now)}
	if r, err := q.world.role(p.role); err == nil {
		x.Roles.Items = append(x.Roles.Items, r.briefly())
	}
	return x
}

func createProfile(q *request) (any, error) {
	name := q.in.text["InstanceProfileName"]
	if _, taken := q.world.profiles[strings.ToLower(name)]; taken {
		return nil, conflict("EntityAlreadyExists", "Instance Profile %s already exists.", name)
	}
	p := profile{name: name, id: fmt.Sprintf("AIPAFAKEAWS%010d", q.serial)}
	q.world.setProfile(p)
	return struct{ InstanceProfile profileXML }{q.profileXML(p)}, nil
}

func addRoleToProfile(q *request) (any, error) {
	p, err := q.profile()
	if err != nil {
		return nil, err
	}
	r, err := q.role()
	switch {
	case err != nil:
		return nil, err
	case p.role != "":
		return nil, limitExceeded("InstanceSessionsPerInstanceProfile", 1)
	}
	p.role = r.Name
	q.world.setProfile(p)
	return nil, nil
}

func removeRoleFromProfile(q *request) (any, error) {
	p, err := q.profile()
	if err != nil {
		return nil, err
	}
	if !strings.EqualFold(p.role, q.in.text["RoleName"]) {
		return nil, noSuchEntity("The role with name %s cannot be found.", q.in.text["RoleName"])
	}
	p.role = ""
	q.world.setProfile(p)
	return nil, nil
}

func listProfilesForRole(q *request) (any, error) {
	r, err := q.role()
	if err != nil {
		return nil, err
	}
	part, end, err := page(q, q.world.profilesOf(r.Name), func(p profile) string { return strings.ToLower(p.name) })
	if err != nil {
		return nil, err
	}
	out := struct {
		InstanceProfiles members[profileXML]
		pageEnd
	}{pageEnd: end}
	for _, p := range part {
		out.InstanceProfiles.Items = append(out.InstanceProfiles.Items, q.profileXML(p))
	}
	return out, nil
}
