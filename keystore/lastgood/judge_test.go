package lastgood

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/issuerurl"
)

const shared = "https://shared.example.com"

// claim is a document that claims the shared URL.
func claim(name string, generation int64, keys ...int) doc {
	return doc{name: name, generation: generation, issuers: []string{shared}, keys: keys}
}

func withdrawn(d doc) doc {
	d.withdrawn = true
	return d
}

func newCandidate(n keystore.Name, version *Summary) *Candidate {
	return &Candidate{Name: n, Version: version}
}

// decide judges documents against last good versions and returns "REASON" by name, empty for one that is taken over.
func decide(t testing.TB, j Judge, good []doc, batch []doc) map[string]string {
	t.Helper()
	x := &Index{}
	for _, d := range good {
		x.Put(keystore.Name(d.name), d.summary(t))
	}
	j.State = x
	var all []*Candidate
	for _, d := range batch {
		all = append(all, newCandidate(keystore.Name(d.name), d.summary(t)))
	}
	j.Decide(all)
	got := map[string]string{}
	for _, c := range all {
		got[string(c.Name)] = string(reasonOf(c.Rejected))
	}
	return got
}

func TestJudge(t *testing.T) {
	const ok, conflict = "", "url_conflict"
	wide := func(name string, generation int64, keys ...int) doc {
		d := claim(name, generation, keys...)
		d.issuers = []string{"https://oidc.example.com/" + name, shared}
		return d
	}
	dev := func(name, url string, k int) doc {
		return doc{name: name, generation: 1, issuers: []string{url}, keys: []int{k}, dev: true}
	}
	gone := withdrawn(claim("b", 2, 1))
	gone.gone = []int{9}
	for name, tc := range map[string]struct {
		good, batch []doc
		want        map[string]string
	}{
		"alone":                                       {nil, []doc{claim("a", 1, 1)}, map[string]string{"a": ok}},
		"two newcomers":                               {nil, []doc{claim("a", 1, 1), claim("b", 1, 2)}, map[string]string{"a": conflict, "b": conflict}},
		"two newcomers, one with more":                {nil, []doc{wide("a", 1, 1), claim("b", 1, 2)}, map[string]string{"a": conflict, "b": conflict}},
		"three newcomers":                             {nil, []doc{claim("c", 1, 3), claim("a", 1, 1), claim("b", 1, 2)}, map[string]string{"a": conflict, "b": conflict, "c": conflict}},
		"newcomers with URLs of one":                  {nil, []doc{dev("a", "https://localhost:8443/x", 1), dev("b", "https://localhost:9443/x", 2)}, map[string]string{"a": conflict, "b": conflict}},
		"newcomers beside each other":                 {nil, []doc{dev("a", "https://localhost:8443/x", 1), dev("b", "https://localhost:8443/y", 2)}, map[string]string{"a": ok, "b": ok}},
		"an owner and a newcomer":                     {[]doc{claim("b", 1, 2)}, []doc{claim("a", 9, 1)}, map[string]string{"a": conflict}},
		"its next version with a rival":               {[]doc{claim("b", 1, 2)}, []doc{claim("a", 9, 1), claim("b", 2, 2)}, map[string]string{"a": conflict, "b": ok}},
		"its bad version with a rival":                {[]doc{claim("b", 2, 2)}, []doc{claim("a", 9, 1), claim("b", 1, 2)}, map[string]string{"a": conflict, "b": "older_generation"}},
		"a newcomer with the owner's key":             {[]doc{claim("b", 1, 2)}, []doc{claim("a", 9, 2)}, map[string]string{"a": conflict}},
		"a newcomer with a key that the owner buried": {[]doc{{name: "b", generation: 1, issuers: []string{shared}, keys: []int{2}, gone: []int{3}}}, []doc{claim("a", 9, 3)}, map[string]string{"a": conflict}},
		"an owner by another port":                    {[]doc{dev("b", "https://localhost:8443/x", 2)}, []doc{dev("a", "https://localhost/x", 1)}, map[string]string{"a": conflict}},
		"a second URL of another":                     {[]doc{claim("b", 1, 2), {name: "a", generation: 1, keys: []int{1}}}, []doc{wide("a", 2, 1)}, map[string]string{"a": conflict}},
		"after the owner's tombstone":                 {[]doc{withdrawn(claim("b", 2, 2))}, []doc{claim("a", 1, 1)}, map[string]string{"a": ok}},
		"with the owner's tombstone":                  {[]doc{claim("b", 1, 2)}, []doc{claim("a", 1, 1), withdrawn(claim("b", 2, 2))}, map[string]string{"a": ok, "b": ok}},
		"with a tombstone that is bad":                {[]doc{claim("b", 2, 2)}, []doc{claim("a", 1, 1), withdrawn(claim("b", 1, 2))}, map[string]string{"a": conflict, "b": "older_generation"}},
		"two after the tombstone":                     {[]doc{withdrawn(claim("b", 2, 2))}, []doc{claim("a", 1, 1), claim("c", 1, 3)}, map[string]string{"a": conflict, "c": conflict}},
		"the first one comes back":                    {[]doc{withdrawn(claim("b", 2, 2)), claim("a", 1, 1)}, []doc{{name: "b", generation: 3, issuers: []string{shared}, keys: []int{3}, gone: []int{2}}}, map[string]string{"b": conflict}},
		"a bad version claims nothing":                {[]doc{{name: "a", generation: 5, keys: []int{1}}}, []doc{wide("a", 4, 1), claim("b", 1, 2)}, map[string]string{"a": "older_generation", "b": ok}},
		// A tombstone binds its own key set only: from nothing, nobody can tell whether it ever had the URL or the keys.
		"a key that another's tombstone holds":  {[]doc{gone}, []doc{claim("a", 1, 1)}, map[string]string{"a": ok}},
		"a key that another's tombstone buried": {[]doc{gone}, []doc{claim("a", 1, 9)}, map[string]string{"a": ok}},
		"beside another's tombstone":            {nil, []doc{claim("a", 1, 1), gone}, map[string]string{"a": ok, "b": ok}},
		"beside the tombstone of the owner":     {[]doc{claim("b", 1, 1)}, []doc{claim("a", 1, 1), withdrawn(claim("b", 2, 1))}, map[string]string{"a": ok, "b": ok}},
		"in a later version":                    {[]doc{gone, claim("a", 1, 3)}, []doc{claim("a", 2, 3, 1)}, map[string]string{"a": ok}},
		"a claim is one beside a tombstone":     {[]doc{gone}, []doc{claim("a", 1, 1), claim("c", 1, 3)}, map[string]string{"a": conflict, "c": conflict}},
		"its own tombstone":                     {[]doc{gone}, []doc{{name: "b", generation: 3, issuers: []string{shared}, keys: []int{3}, gone: []int{1, 9}}}, map[string]string{"b": ok}},
		"a tombstone with another's key":        {[]doc{gone}, []doc{withdrawn(claim("a", 1, 1))}, map[string]string{"a": ok}},
		"a tombstone beside an owner":           {[]doc{claim("b", 1, 2)}, []doc{withdrawn(claim("a", 1, 1))}, map[string]string{"a": ok}},
	} {
		for range 2 { // in either order
			if got := decide(t, Judge{}, tc.good, tc.batch); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("%s: %v, want %v", name, got, tc.want)
			}
			slices.Reverse(tc.batch)
		}
	}
}

// What the caller has refused stays refused for its reason, and claims nothing.
func TestJudgeKeepsTheCallersRejections(t *testing.T) {
	refused := newCandidate("a", claim("a", 1, 1).summary(t))
	refused.Rejected = Reject(ReasonDev, "it is x")
	unread := &Candidate{Name: "c", Rejected: Reject(ReasonUnreadable, "x")}
	good := newCandidate("b", claim("b", 1, 2).summary(t))
	Judge{State: &Index{}, Waited: StartPatience}.Decide([]*Candidate{refused, unread, {Name: "absent"}, good})
	if !refused.Rejected.Is(ReasonDev) || !unread.Rejected.Is(ReasonUnreadable) || good.Rejected != nil {
		t.Errorf("%+v, %+v, %+v", refused.Rejected, unread.Rejected, good.Rejected)
	}
}

// No newcomer gets a URL that a rejected document of another newcomer has or may have. An owner keeps what it has.
func TestJudgeHeedsRejectedDocuments(t *testing.T) {
	brokenWith := func(urls ...string) *Rejection {
		issuers := []keystore.IssuerURL{}
		for _, raw := range urls {
			u, err := keystore.ParseIssuerURL(raw, false)
			if err != nil {
				t.Fatal(err)
			}
			issuers = append(issuers, u)
		}
		return RejectError(&keystore.BrokenError{Reason: ReasonBroken, Err: errors.New("x"), Issuers: issuers})
	}
	junk := RejectError(&keystore.BrokenError{Reason: ReasonBroken, Err: errors.New("x")})
	newer := RejectError(&keystore.BrokenError{Reason: ReasonNewerVersion, Err: errors.New("x")})
	unread := RejectError(errors.New("connection refused"))
	kept := RejectError(&keystore.UnreadableError{Err: errors.New("permission denied")})
	waiting := claim("b", 1, 2).summary(t)
	c := &Candidate{Name: "b", Version: waiting}
	conflict := c.inConflict("x")
	var patterns Judge
	patterns.Permitted = func(n keystore.Name, r keystore.Route) bool { return n != "b" || r == issuerurl.RouteOf(shared) }
	elsewhere := Judge{Permitted: func(n keystore.Name, r keystore.Route) bool { return n != "b" }}
	late := Judge{Waited: StartPatience}
	for name, tc := range map[string]struct {
		judge    Judge
		rejected *Rejection
		good     []doc // beside what is rejected
		want     keystore.Reason
		waits    bool
	}{
		"broken, with the URL":                 {Judge{}, brokenWith("https://x.example", shared), nil, ReasonURLConflict, false},
		"broken, with the URL, later":          {late, brokenWith(shared), nil, ReasonURLConflict, false},
		"broken, with another URL":             {Judge{}, brokenWith("https://x.example"), nil, "", false},
		"no key set at all":                    {Judge{}, brokenWith(), nil, "", false},
		"broken, may not have it":              {elsewhere, brokenWith(shared), nil, "", false},
		"broken, has a good version":           {Judge{}, brokenWith(shared), []doc{{name: "b", generation: 1, keys: []int{2}}}, "", false},
		"junk":                                 {Judge{}, junk, nil, "", false},
		"junk, may have it":                    {patterns, junk, nil, "", false},
		"of a newer version":                   {Judge{}, newer, nil, "", false},
		"unreadable":                           {Judge{}, unread, nil, ReasonURLConflict, true},
		"unreadable, later":                    {late, unread, nil, "", false},
		"unreadable, may have it, later":       {Judge{Permitted: patterns.Permitted, Waited: time.Hour}, unread, nil, ReasonURLConflict, true},
		"unreadable, may not have it":          {elsewhere, unread, nil, "", false},
		"kept from being read":                 {Judge{}, kept, nil, "", false},
		"kept from being read, may have it":    {patterns, kept, nil, ReasonURLConflict, true},
		"unreadable, has a good version":       {Judge{}, unread, []doc{{name: "b", generation: 1, keys: []int{2}}}, "", false},
		"waits for it":                         {Judge{}, conflict, nil, ReasonURLConflict, false},
		"waits for it beside its good version": {late, conflict, []doc{{name: "b", generation: 1, keys: []int{2}}}, ReasonURLConflict, false},
		"has another fault":                    {Judge{}, Reject(ReasonDev, "x"), nil, "", false},
		"missing":                              {Judge{}, Reject(ReasonMissing, "x"), nil, "", false},
	} {
		x := &Index{}
		for _, d := range tc.good {
			x.Put(keystore.Name(d.name), d.summary(t))
		}
		tc.judge.State = x
		newcomer := func() *Candidate { return newCandidate("a", claim("a", 1, 1).summary(t)) }

		alone, j := newcomer(), tc.judge
		j.Rejected = maps.All(map[keystore.Name]*Rejection{"b": tc.rejected, "a": unread})
		j.Decide([]*Candidate{alone})
		beside := newcomer()
		tc.judge.Decide([]*Candidate{beside, {Name: "b", Rejected: tc.rejected}})
		for how, c := range map[string]*Candidate{"before": alone, "in the batch": beside} {
			if got := c.Rejected; got.Is(ReasonURLConflict) != (tc.want != "") || got.Waits() != tc.waits {
				t.Errorf("%s, %s: %+v", name, how, got)
			}
		}

		superseded := newcomer() // what was known of b before does not count
		j.Decide([]*Candidate{superseded, {Name: "b"}})
		if superseded.Rejected != nil {
			t.Errorf("%s: %+v although the document is gone", name, superseded.Rejected)
		}
		x.Put("a", claim("a", 1, 1).summary(t))
		owner := newCandidate("a", claim("a", 2, 1).summary(t))
		j.Decide([]*Candidate{owner})
		if owner.Rejected != nil {
			t.Errorf("%s: the owner: %+v", name, owner.Rejected)
		}
	}
}
