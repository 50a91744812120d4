package fakegcp

import (
	"regexp"
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

// kept is how long a deleted pool, provider or service account can be brought back
// (https://cloud.google.com/iam/docs/manage-workload-identity-pools-providers).
const kept = 30 * 24 * time.Hour

func (o Options) poolName(id string) string {
	return "projects/" + o.Number + "/locations/global/workloadIdentityPools/" + id
}

// checkID is the rule for the IDs of pools and providers: 4 to 32 of [a-z0-9-], and gcp- is Google's own.
func checkID(what, id string) error {
	if !regexp.MustCompile(`^[a-z0-9-]{4,32}$`).MatchString(id) || strings.HasPrefix(id, "gcp-") {
		return invalid("Invalid %s: %q. It must be 4 to 32 characters of [a-z0-9-], and must not begin with \"gcp-\".", what, id)
	}
	return nil
}

// pool is what a call names, if it is there and no operation is still making it.
func (q *request) pool() (Pool, error) {
	p, ok := q.world.pools[q.vars["pool"]]
	if !ok {
		return Pool{}, absent()
	}
	return p, nil
}

func getPool(q *request) (any, error) { return q.pool() }

func createPool(q *request) (any, error) {
	id := q.query.Get("workloadIdentityPoolId")
	if err := checkID("workload_identity_pool_id", id); err != nil {
		return nil, err
	}
	var p Pool
	if err := q.read(&p); err != nil {
		return nil, err
	}
	p.Name, p.State, p.ExpireTime, p.Created = q.poolName(id), active, nil, q.now.Add(q.OperationDelay)
	if _, found := q.world.pools[id]; found || q.world.pending(p.Name) {
		return nil, taken()
	}
	return q.changePool(id, func(Pool) Pool { return p }), nil
}

// changePool begins a change of one pool.
func (q *request) changePool(id string, change func(Pool) Pool) any {
	return q.start(q.poolName(id), operation{kind: poolType,
		change:  func(w world) world { w.pools = fakecloud.With(w.pools, id, change(w.pools[id])); return w },
		subject: func(w world) any { return w.pools[id] }})
}

func patchPool(q *request) (any, error) {
	old, err := q.pool()
	if err != nil {
		return nil, err
	}
	var in Pool
	paths, err := q.mask(&in)
	if err != nil {
		return nil, err
	}
	if old.State == deleted {
		return nil, precondition("The workload identity pool is deleted.")
	}
	for _, path := range paths {
		if path != "displayName" && path != "description" && path != "disabled" {
			return nil, invalid("Invalid update_mask: %s.", path)
		}
	}
	return q.changePool(q.vars["pool"], func(p Pool) Pool {
		for _, path := range paths {
			switch path {
			case "displayName":
				p.DisplayName = in.DisplayName
			case "description":
				p.Description = in.Description
			case "disabled":
				p.Disabled = in.Disabled
			}
		}
		return p
	}), nil
}

// deletePool takes the pool's providers along.
func deletePool(q *request) (any, error) {
	id := q.vars["pool"]
	if p, err := q.pool(); err != nil || p.State == deleted {
		return nil, absent()
	}
	expire := q.now.Add(kept)
	return q.start(q.poolName(id), operation{kind: poolType, subject: func(w world) any { return w.pools[id] },
		change: func(w world) world {
			p := w.pools[id]
			p.State, p.ExpireTime = deleted, &expire
			w.pools = fakecloud.With(w.pools, id, p)
			for key, pr := range w.providers {
				if strings.HasPrefix(key, id+"/") && pr.State == active {
					pr.State, pr.ExpireTime = deleted, &expire
					w.providers = fakecloud.With(w.providers, key, pr)
				}
			}
			return w
		}}), nil
}

// undeletePool brings a pool back, and its providers with it if the account has that kind.
func undeletePool(q *request) (any, error) {
	id := q.vars["pool"]
	p, err := q.pool()
	if err != nil {
		return nil, err
	}
	if p.State != deleted {
		return nil, precondition("The workload identity pool is not deleted.")
	}
	since := *p.ExpireTime
	return q.start(q.poolName(id), operation{kind: poolType, subject: func(w world) any { return w.pools[id] },
		change: func(w world) world {
			p := w.pools[id]
			p.State, p.ExpireTime = active, nil
			w.pools = fakecloud.With(w.pools, id, p)
			for key, pr := range w.providers {
				if q.ReviveProviders && strings.HasPrefix(key, id+"/") && pr.ExpireTime != nil && pr.ExpireTime.Equal(since) {
					pr.State, pr.ExpireTime = active, nil
					w.providers = fakecloud.With(w.providers, key, pr)
				}
			}
			return w
		}}), nil
}
