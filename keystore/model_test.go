package keystore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/gate"
)

// TestNoTokenIsRefused explores every order of events in a small world: one key set that goes from key 1 to key 2 and
// perhaps back, two replicas of the server, a shield and an edge in front of them, one relying party, and two
// kube-apiservers. Time moves in ticks, and the gates are the package's own, counted in ticks. There must be no order in
// which a token that an allowed signer made is refused.
//
// The world is as bad as the assumptions of the gates allow. A replica is behind by up to the convergence. A cache hands
// out a copy while it is fresh, while it revalidates and while its origin is cut off, each for the whole time allowed, and
// the edge takes the shield's copy with its age. A relying party keeps its copy for as long as declared, and never asks
// again because of a kid that it does not know; one that does sees no more than this one. Two clocks are wrong in the
// worst direction. Anyone who works on the rotation may stop for good between any two steps, and somebody else go on.
func TestNoTokenIsRefused(t *testing.T) {
	t.Parallel()
	worlds := []rules{ones(), copied(), {copies: true, upload: 4, token: 2, clocks: 1}}
	longer := []rules{
		{convergence: 2, maxAge: 1, staleWhileRevalidate: 1, staleIfError: 3, client: 3, token: 2, clocks: 1},
		{convergence: 1, maxAge: 3, staleWhileRevalidate: 0, staleIfError: 1, client: 3, token: 4, clocks: 2},
		{convergence: 3, maxAge: 2, staleWhileRevalidate: 1, staleIfError: 0, client: 5, token: 3, clocks: 1},
		{convergence: 1, maxAge: 1, staleWhileRevalidate: 2, staleIfError: 2, added: 2, client: 2, token: 2, clocks: 1},
		{copies: true, upload: 2, token: 5, clocks: 2},
	}
	for _, w := range append(worlds, longer[:many(uint64(len(longer)), 0)]...) {
		if trace := explore(t, withGates(t, w)); trace != nil {
			t.Errorf("%+v: a token is refused after: %s", w, strings.Join(trace, "; "))
		}
	}
}

// TestTheModelFindsEveryMistake takes each rule away and expects the outage that it prevents. A model that finds nothing
// may be blind.
func TestTheModelFindsEveryMistake(t *testing.T) {
	t.Parallel()
	for name, break_ := range map[string]func(*rules){
		"the longer of edge and client, not their sum": func(r *rules) { r.gate = r.convergence + max(r.edge(), r.client) + r.clocks },
		"stale-if-error left out":                      func(r *rules) { r.gate -= r.staleIfError },
		"stale-while-revalidate left out":              func(r *rules) { r.gate -= r.staleWhileRevalidate },
		"convergence left out":                         func(r *rules) { r.gate -= r.convergence },
		"the client left out":                          func(r *rules) { r.gate -= r.client },
		"what an edge adds left out":                   func(r *rules) { r.staleIfError++ },
		"no room for clocks":                           func(r *rules) { r.gate -= r.clocks },
		"no gate":                                      func(r *rules) { r.gate = 0 },
		"retire believes one token":                    func(r *rules) { r.oneToken = true },
		"nobody asks again after a key was retired":    func(r *rules) { r.unasked = true },
		"handed over before promoted":                  func(r *rules) { r.handOverFirst = true },
		"a frozen replica behind a balancer":           func(r *rules) { r.frozen = true },
		"removed before the tokens have expired":       func(r *rules) { r.remove -= r.clocks },
	} {
		t.Run(name, func(t *testing.T) { isFound(t, ones(), break_) })
	}
	for name, break_ := range map[string]func(*rules){
		"an upload counts at once":                    func(r *rules) { r.gate = 0 },
		"what the relying party may lag left out":     func(r *rules) { r.gate -= r.upload },
		"no room for clocks":                          func(r *rules) { r.gate -= r.clocks },
		"nobody uploads, and nothing is read back":    func(r *rules) { r.forgotten = true },
		"nobody asks again after a key was retired":   func(r *rules) { r.unasked = true },
		"removed and uploaded before tokens expired":  func(r *rules) { r.remove -= r.clocks },
		"handed over before promoted":                 func(r *rules) { r.handOverFirst = true },
		"only retire believes one token, with copies": func(r *rules) { r.oneToken = true },
	} {
		t.Run("copies: "+name, func(t *testing.T) { isFound(t, copied(), break_) })
	}
}

// isFound expects the model to find a way to a refused token in a world with a mistake.
func isFound(t *testing.T, world rules, break_ func(*rules)) {
	t.Parallel()
	r := withGates(t, world)
	break_(&r)
	trace := explore(t, r)
	if trace == nil {
		t.Fatal("the model sees nothing wrong with it")
	}
	t.Log(strings.Join(trace, "; "))
}

// rules are the durations of the world and of the gates, in ticks, and the mistakes.
type rules struct {
	convergence, maxAge, staleWhileRevalidate, staleIfError, client int8
	added                                                           int8 // how much of either stale-… an edge adds to what is declared
	token                                                           int8 // how long tokens live: refused from then on
	clocks                                                          int8 // by how much two clocks may differ
	gate, remove                                                    int8 // after the observation, after the retirement

	copies bool // nobody reads the documents: the relying party goes by what is uploaded to it
	upload int8 // how long it may go by what it held before, after its control plane has the upload

	forgotten     bool // a key counts as uploaded that nobody has uploaded
	oneToken      bool // retire asks one kube-apiserver
	unasked       bool // nobody asks who signs with a retired key
	handOverFirst bool // the next key is staged when the gate is open, and promoted later
	frozen        bool // one replica never changes, and a balancer hides it from the observer
}

func (r rules) edge() int8 { return r.maxAge + r.staleWhileRevalidate + r.staleIfError }

// ones is a world in which everything takes one tick.
func ones() rules {
	return rules{convergence: 1, maxAge: 1, staleWhileRevalidate: 1, staleIfError: 1, client: 1, token: 1, clocks: 1}
}

// copied is a world with one upload and no reader, in which everything takes one tick.
func copied() rules { return rules{copies: true, upload: 1, token: 1, clocks: 1} }

// withGates returns r with the gates' arithmetic, read term by term from what the gates say, that of caches by what is declared and
// seen of them, a tick being an hour.
func withGates(t *testing.T, r rules) rules {
	t.Helper()
	ticks := map[string]int8{"convergence": r.convergence, "client": r.client, "clocks": r.clocks, "token lifetime": r.token, "skew": r.clocks, "upload": r.upload}
	sum := func(err error) (n int8) {
		e, ok := errors.AsType[*NotYetError](err)
		if !ok || len(e.Terms) == 0 {
			t.Fatalf("no gate with terms: %v", err)
		}
		for _, term := range e.Terms {
			_, what, is := strings.Cut(term.What, ", ") // "retired at …, token lifetime"
			if !is {
				what = term.What
			}
			of, known := ticks[what]
			if strings.HasPrefix(what, "edge") {
				of, known = int8(term.Duration/time.Hour), true
			}
			if !known {
				t.Fatalf("the model does not know the term %q", term.What)
			}
			n += of
		}
		return n
	}
	hours := func(n int8) time.Duration { return time.Duration(n) * time.Hour }
	p := Policy{MaxAge: DurationPtr(hours(r.maxAge)), StaleWhileRevalidate: DurationPtr(max(0, hours(r.staleWhileRevalidate-r.added))),
		StaleIfError: DurationPtr(max(0, hours(r.staleIfError-r.added))), RelyingParties: []string{"aws"}, TokenLifetime: DurationPtr(time.Hour)}
	if r.copies {
		p = Policy{RelyingParties: []string{oneUpload}, Reach: ReachCopies, TokenLifetime: DurationPtr(time.Hour)}
	}
	s := must(New(change(t0), Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com/prod-a"), Keys: []VerificationKey{testKey(0)}, Policy: p}))
	s = must(s.Add(change(t0), testKey(1)))
	_, promote := s.Promote(change(t0.Add(time.Minute)), testKey(1).ID(), Observed{Since: t0, Fresh: t0, Cache: Cache{MaxAge: 0, StaleWhileRevalidate: hours(r.staleWhileRevalidate), StaleIfError: hours(r.staleIfError)},
		Uploads: gate.Uploads{readBack(oneUpload, t0, testKey(0), testKey(1))}})
	s = must(s.Promote(Change{At: t0, Force: true, Why: "test"}, testKey(1).ID(), Observed{}))
	s = must(s.Retire(change(t0), testKey(0).ID(), Evidence{Statement: "by hand"}))
	_, remove := s.Remove(change(t0), testKey(0).ID(), Removal{Uploads: gate.Uploads{readBack(oneUpload, t0.Add(-6*time.Hour), testKey(0), testKey(1))}})
	r.gate, r.remove = sum(promote), sum(remove)
	return r
}

// copyOf is a JWKS that somebody holds: which of the two keys it has, as bits, and for how many ticks. The age of a cache's
// copy counts from the moment at which a replica made it, that of the relying party's from when it fetched it.
type copyOf struct {
	keys uint8
	age  int8 // never means no copy
}

const never int8 = -1

// moment is one state of the world.
type moment struct {
	state    [2]State // of the keys; empty before they are published and after they are removed
	store    uint8    // the published keys, as bits
	behind   int8     // ticks since the store changed
	replicas [2]uint8
	shield   copyOf
	edge     copyOf
	client   copyOf
	uploaded uint8 // by the relying party's control plane
	checks   uint8 // by its servers, which check tokens
	lag      int8  // ticks since the two differ

	seen    int8    // ticks since key 2 was observed
	retired [2]int8 // ticks since
	staged  uint8   // the key that the kube-apiservers are to sign with
	signs   [2]uint8
	signed  [2]int8 // ticks since a token of that key may have been made
}

func begin() moment {
	none := copyOf{0, never}
	return moment{state: [2]State{Active, ""}, store: 1, replicas: [2]uint8{1, 1}, shield: none, edge: none, client: none, uploaded: 1, checks: 1,
		seen: never, retired: [2]int8{never, never}, signed: [2]int8{0, never}}
}

// event is what leads from one moment to another.
type event struct {
	what string
	to   moment
}

// explore returns the events that lead to a refused token on one of the shortest ways, nil when there is none.
func explore(t *testing.T, r rules) []string {
	type step struct {
		from int
		what string
	}
	queue, steps, known := []moment{begin()}, []step{{-1, ""}}, map[moment]bool{begin(): true}
	for at := 0; at < len(queue); at++ {
		m := queue[at]
		if why := r.refuses(m); why != "" {
			trace := []string{why}
			for i := at; steps[i].from >= 0; i = steps[i].from {
				trace = append(trace, steps[i].what)
			}
			slices.Reverse(trace)
			return trace
		}
		for _, e := range r.events(m) {
			if !known[e.to] {
				known[e.to] = true
				queue, steps = append(queue, e.to), append(steps, step{at, e.what})
			}
		}
	}
	t.Logf("%d moments", len(queue))
	return nil
}

// refuses returns which token the relying party refuses, empty for none. It picks keys from the copy that it holds.
func (r rules) refuses(m moment) string {
	for k := range m.signed {
		alive := m.signed[k] != never && m.signed[k] < r.token
		if alive && r.copies && m.checks&bit(k) == 0 {
			return fmt.Sprintf("a token of key %d is refused by who holds a copy", k+1)
		}
		if alive && m.client.age != never && m.client.keys&bit(k) == 0 {
			return fmt.Sprintf("a token of key %d is refused", k+1)
		}
	}
	return ""
}

func bit(key int) uint8 { return 1 << key }

func (r rules) events(m moment) []event {
	return slices.Concat(r.traffic(m), r.cluster(m), r.operator(m), []event{{"tick", r.tick(m)}})
}

// traffic is what servers, caches and the relying party do, which takes no time.
func (r rules) traffic(m moment) (all []event) {
	if r.copies {
		if n := m; m.uploaded != m.store && !r.forgotten {
			n.uploaded, n.lag = m.store, 0
			all = append(all, event{"somebody uploads what is published", n})
		}
		if n := m; m.checks != m.uploaded {
			n.checks = m.uploaded
			all = append(all, event{"the relying party goes by the upload", n})
		}
		return all
	}
	for i := range m.replicas {
		if n := m; m.replicas[i] != m.store && (i == 0 || !r.frozen) {
			n.replicas[i] = m.store
			all = append(all, event{fmt.Sprintf("replica %d follows", i+1), n})
		}
		n := m
		n.shield = copyOf{m.replicas[i], 0}
		all = append(all, event{fmt.Sprintf("the shield fetches from replica %d", i+1), n})
	}
	if n := m; m.shield.age != never {
		n.edge = m.shield
		all = append(all, event{"the edge fetches from the shield", n})
	}
	if n := m; m.edge.age != never {
		n.client = copyOf{m.edge.keys, 0}
		all = append(all, event{fmt.Sprintf("the relying party gets a copy of age %d", m.edge.age), n})
	}
	return all
}

// cluster is what the kube-apiservers do: each restarts when it likes, and then signs with what is staged; or comes back with a
// key that was retired meanwhile, which is active again by the next look.
func (r rules) cluster(m moment) (all []event) {
	for i := range m.signs {
		if n := m; m.signs[i] != m.staged {
			n.signs[i] = m.staged
			n.signed[m.staged] = 0
			all = append(all, event{fmt.Sprintf("kube-apiserver %d signs with key %d", i+1, m.staged+1), n})
		}
		for k := range m.state {
			if n := m; m.state[k] == Retired && int(m.signs[i]) != k {
				n.signs[i], n.signed[k] = uint8(k), 0
				if !r.unasked {
					n.state[k], n.retired[k] = Active, never
				}
				all = append(all, event{fmt.Sprintf("kube-apiserver %d comes back with key %d", i+1, k+1), n})
			}
		}
	}
	return all
}

// operator is every step that somebody may take, by the rules.
func (r rules) operator(m moment) (all []event) {
	add := func(what string, k int, edit func(n *moment)) {
		n := m
		edit(&n)
		all = append(all, event{fmt.Sprintf("%s key %d", what, k+1), n})
	}
	publish := func(n *moment, keys uint8) { n.store, n.behind = keys, 0 }
	if m.state[1] == "" && m.signed[1] == never && m.store == bit(0) && m.seen == never {
		add("publish", 1, func(n *moment) { n.state[1] = Next; publish(n, m.store|bit(1)) })
	}
	if m.state[1] == Next {
		r.begin(m, add)
		add("give up", 1, func(n *moment) { n.state[1], n.seen = "", 0; publish(n, m.store&^bit(1)) })
	}
	for k := range m.state {
		other := 1 - k
		switch m.state[k] {
		case Active:
			if int(m.staged) != k {
				add("stage", k, func(n *moment) { n.staged = uint8(k) })
			}
			if m.state[other] == Active && r.shown(m, other) {
				add("retire", k, func(n *moment) { n.state[k], n.retired[k] = Retired, 0 })
			}
		case Retired:
			add("promote again", k, func(n *moment) { n.state[k], n.retired[k] = Active, never })
			held := !r.copies || m.uploaded&bit(other) != 0 || m.state[other] != Active
			if m.retired[k]+r.clocks >= r.remove && held {
				add("remove", k, func(n *moment) { n.state[k], n.retired[k] = "", never; publish(n, m.store&^bit(k)) })
			}
		}
	}
	return all
}

// begin is what leads to the first signature of key 2. An observer asks every replica, so one without the key keeps the
// gate shut; where a balancer hides them, one replica may have answered each time.
func (r rules) begin(m moment, add func(string, int, func(*moment))) {
	has := func(keys uint8) bool { return keys&bit(1) != 0 }
	switch {
	case r.copies && m.seen == never && (has(m.uploaded) || r.forgotten):
		add("read back", 1, func(n *moment) { n.seen = 0 })
	case !r.copies && m.seen == never && (has(m.replicas[0]) || has(m.replicas[1])):
		add("observe", 1, func(n *moment) { n.seen = 0 })
	}
	if m.seen != never && m.seen+r.clocks >= r.gate {
		if r.handOverFirst {
			add("stage", 1, func(n *moment) { n.staged = 1 })
		}
		add("promote", 1, func(n *moment) { n.state[1] = Active })
	}
}

// shown reports whether tokens show that the kube-apiservers sign with a key.
func (r rules) shown(m moment, key int) bool {
	first, second := int(m.signs[0]) == key, int(m.signs[1]) == key
	return int(m.staged) == key && (first && second || r.oneToken && (first || second))
}

// tick lets time pass. What runs out is gone.
func (r rules) tick(m moment) moment {
	older := func(age *int8, most int8) {
		if *age != never && *age <= most {
			*age++
		}
	}
	runOut := func(c *copyOf, most int8) {
		if older(&c.age, most); c.age > most {
			*c = copyOf{0, never}
		}
	}
	runOut(&m.shield, r.edge())
	runOut(&m.edge, r.edge())
	runOut(&m.client, r.client)
	if m.checks != m.uploaded {
		if older(&m.lag, r.upload); m.lag >= r.upload {
			m.checks, m.lag = m.uploaded, 0
		}
	}
	if older(&m.behind, r.convergence); m.behind >= r.convergence {
		m.replicas[0] = m.store
		if !r.frozen {
			m.replicas[1] = m.store
		}
	}
	if m.state[1] == Next {
		older(&m.seen, r.gate)
	}
	for k := range m.signed {
		older(&m.retired[k], r.remove)
		older(&m.signed[k], r.token)
		if int(m.signs[0]) == k || int(m.signs[1]) == k {
			m.signed[k] = 0
		}
	}
	return m
}
