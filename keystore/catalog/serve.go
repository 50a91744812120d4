package catalog

import (
	"maps"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// Rejected returns the key sets that a publisher without history would not serve beside the others, such as two with one
// issuer URL, with the reasons. It is the judgement of [lastgood.Judge], so that what is exported and what is listed
// agree with what is served. Which names may have which URLs is in a publisher's configuration and not known here: two
// key sets with one URL are rejected both. A document whose issuer URLs are unknown holds up nobody.
func (c Contents) Rejected() map[keystore.Name]*lastgood.Rejection {
	unread := map[keystore.Name]*lastgood.Rejection{}
	for n, err := range c.Unread {
		if r := lastgood.RejectError(err); r != nil {
			unread[n] = r
		}
	}
	var batch []*lastgood.Candidate
	for _, s := range c.Sets {
		version := lastgood.SummaryOf(s)
		batch = append(batch, &lastgood.Candidate{Name: s.Name(), Version: &version})
	}
	lastgood.Judge{State: &lastgood.Index{}, Rejected: maps.All(unread), Waited: lastgood.StartPatience}.Decide(batch)
	rejected := map[keystore.Name]*lastgood.Rejection{}
	for _, one := range batch {
		if one.Rejected != nil {
			rejected[one.Name] = one.Rejected
		}
	}
	return rejected
}
