package fakeazure

import (
	"maps"
	"slices"
	"strings"

	"github.com/keypost/keypost/test/fakecloud"
)

func getSubscription(q *request) (answer, error) {
	return ok(map[string]any{"id": "/subscriptions/" + q.vars["subscription"], "subscriptionId": q.vars["subscription"],
		"displayName": "fakeazure", "state": "Enabled", "tenantId": q.Tenant})
}

// unregistered reports whether a subscription has not registered a resource provider.
func (o Options) unregistered(namespace string) bool {
	return slices.ContainsFunc(o.Unregistered, func(n string) bool { return strings.EqualFold(n, namespace) })
}

func (g Group) json() map[string]any {
	state := "Succeeded"
	if g.Deleting {
		state = "Deleting"
	}
	return map[string]any{"id": g.ID, "name": g.Name, "type": "Microsoft.Resources/resourceGroups", "location": g.Location, "tags": g.Tags,
		"properties": map[string]string{"provisioningState": state}}
}

// group is the group that a call names.
func (q *request) group() (Group, error) {
	g, ok := q.world.groups[strings.ToLower("/subscriptions/"+q.vars["subscription"]+"/resourceGroups/"+q.vars["group"])]
	if !ok {
		return g, noGroup(q.vars["group"])
	}
	return g, nil
}

// openGroup is the group that a call names, when something may be made in it.
func (q *request) openGroup() (Group, error) {
	g, err := q.group()
	if err == nil && g.Deleting {
		err = conflict("ResourceGroupBeingDeleted", "The resource group '%s' is in deprovisioning state and cannot perform this operation.", g.Name)
	}
	return g, err
}

func getGroup(q *request) (answer, error) {
	g, err := q.group()
	if err != nil {
		return answer{}, err
	}
	return ok(g.json())
}

// tracked is what a body says of a resource with a place and tags.
type tracked struct {
	Location   string            `json:"location"`
	Tags       map[string]string `json:"tags"`
	Properties map[string]any    `json:"properties"`
	Kind       string            `json:"kind"`
	SKU        map[string]string `json:"sku"`
}

// place is the location as Azure compares it: "Central US" is centralus.
func (in tracked) place() string { return strings.ToLower(strings.ReplaceAll(in.Location, " ", "")) }

func putGroup(q *request) (answer, error) {
	name := q.vars["group"]
	var in tracked
	if err := q.read(&in); err != nil {
		return answer{}, err
	}
	old, err := q.openGroup()
	exists := old.ID != ""
	if err != nil && exists {
		return answer{}, err
	}
	location := in.place()
	if exists && old.Location != location {
		return answer{}, conflict("InvalidResourceGroupLocation", "Invalid resource group location '%s'. The Resource group already exists in location '%s'.",
			location, old.Location)
	}
	g := Group{ID: "/subscriptions/" + q.vars["subscription"] + "/resourceGroups/" + name, Name: name, Location: location, Tags: in.Tags}
	if exists {
		g.ID, g.Name = old.ID, old.Name
	}
	return q.putGroup(g, exists)
}

func (q *request) putGroup(g Group, exists bool) (answer, error) {
	q.world.groups = fakecloud.With(q.world.groups, strings.ToLower(g.ID), g)
	if exists {
		return ok(g.json())
	}
	return created(g.json())
}

// retag reads the tags that a PATCH brings, or keeps those that there are.
func (q *request) retag(have map[string]string) (map[string]string, error) {
	var in tracked
	if err := q.read(&in); err != nil {
		return nil, err
	}
	if in.Tags == nil {
		return have, nil
	}
	return in.Tags, nil
}

func patchGroup(q *request) (answer, error) {
	g, err := q.openGroup()
	if err == nil {
		g.Tags, err = q.retag(g.Tags)
	}
	if err != nil {
		return answer{}, err
	}
	return q.putGroup(g, true)
}

// patchGroupTags changes some of a group's tags.
func patchGroupTags(q *request) (answer, error) {
	g, err := q.openGroup()
	if err == nil {
		g.Tags, err = q.mergeTags(g.Tags)
	}
	if err != nil {
		return answer{}, err
	}
	q.world.groups = fakecloud.With(q.world.groups, strings.ToLower(g.ID), g)
	return tagsOf(g.ID, g.Tags)
}

// tagsOf is what the calls about the tags of a thing answer.
func tagsOf(id string, tags map[string]string) (answer, error) {
	return ok(map[string]any{"id": id + "/providers/Microsoft.Resources/tags/default", "name": "default", "type": "Microsoft.Resources/tags",
		"properties": map[string]any{"tags": tags}})
}

// mergeTags changes some of the tags that a thing has, whatever the letter case of their names: the others stay
// (https://learn.microsoft.com/rest/api/resources/tags/update-at-scope).
func (q *request) mergeTags(have map[string]string) (map[string]string, error) {
	var in struct {
		Operation  string  `json:"operation"`
		Properties tracked `json:"properties"`
	}
	if err := q.read(&in); err != nil {
		return nil, err
	}
	tags := map[string]string{}
	for name, value := range have {
		given, is := "", false
		for n, v := range in.Properties.Tags {
			if strings.EqualFold(n, name) {
				given, is = v, true
			}
		}
		keeps := !is || in.Operation == "Delete" && given != "" && given != value
		if keeps && in.Operation != "Replace" {
			tags[name] = value
		}
	}
	if in.Operation != "Delete" {
		maps.Copy(tags, in.Properties.Tags)
	}
	return tags, nil
}

func deleteGroup(q *request) (answer, error) {
	g, err := q.group()
	if err != nil {
		return answer{}, err
	}
	g.Deleting = true
	q.world.groups = fakecloud.With(q.world.groups, strings.ToLower(g.ID), g)
	return q.start(func(w world) world { return w.emptied(g.ID) }, nil)
}

// listResources is what is in a group, of every kind that Resource Manager lists.
func listResources(q *request) (answer, error) {
	g, err := q.group()
	if err != nil {
		return answer{}, err
	}
	var items []any
	for _, i := range fakecloud.Sorted(q.world.identities) {
		if within(i.ID, g.ID) {
			items = append(items, i.json(q.Options))
		}
	}
	for _, o := range fakecloud.Sorted(q.world.others) {
		if within(o.ID, g.ID) {
			items = append(items, map[string]any{"id": o.ID, "name": o.Name, "type": o.Type, "location": g.Location})
		}
	}
	return q.page(items)
}
