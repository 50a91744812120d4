package routes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"unsafe"
)

// testPage returns documents that name where they belong.
func testPage(name string) *Page {
	content := func(what string) Content { return Content{name + " " + what, fmt.Sprintf("%24s", name+what)} }
	return &Page{Owner: name, Discovery: content("discovery"), JWKS: content("jwks"), CacheControl: "public, " + name}
}

// A table is held against a plain map over many random changes, and a change must not touch what others hold.
func TestTableIsAMap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	table, plain := (*Table)(nil).With(nil), map[Key]*Page{}
	for step := range 500 {
		before, were := table, table.shards
		changes := map[Key]*Page{}
		for range rnd.IntN(4) {
			k := Key{fmt.Sprintf("h%d.example.com", rnd.IntN(3)), fmt.Sprintf("/p%d", rnd.IntN(60))}
			changes[k] = nil
			if rnd.IntN(3) > 0 {
				changes[k] = testPage(fmt.Sprint(step, "-", rnd.IntN(1000)))
			}
		}
		table = table.With(changes)
		touched := map[uint64]bool{}
		for k, page := range changes {
			touched[table.hash(k)%shards] = true
			plain[k] = page
		}
		checkShards(t, before, table, were, touched)
		checkSame(t, table, plain)
	}
}

func checkShards(t *testing.T, before, after *Table, were [shards]*shard, touched map[uint64]bool) {
	t.Helper()
	for i := range were {
		if before.shards[i] != were[i] {
			t.Fatal("a change touched the table that it began with")
		}
		if !touched[uint64(i)] && after.shards[i] != were[i] {
			t.Fatalf("shard %d was copied although nothing in it changed", i)
		}
	}
}

func checkSame(t *testing.T, table *Table, plain map[Key]*Page) {
	t.Helper()
	count := 0
	for k, page := range plain {
		if page != nil {
			count++
		}
		checkPage(t, table, k, page)
	}
	if table.Len() != count {
		t.Fatalf("%d pages, want %d", table.Len(), count)
	}
}

// checkPage compares the entry of a key with the page that was put there.
func checkPage(t *testing.T, table *Table, k Key, page *Page) {
	t.Helper()
	e, ok := table.Find(k)
	if ok != (page != nil) {
		t.Fatalf("%v is found: %t", k, ok)
	}
	if page == nil {
		return
	}
	if e.Owner() != page.Owner {
		t.Fatalf("%v is owned by %q, want %q", k, e.Owner(), page.Owner)
	}
	check := func(d Document, want Content) {
		t.Helper()
		got := []string{d.Body, d.ETag[0], d.Length[0], e.CacheControl()[0]}
		if !slices.Equal(got, []string{want.Body, want.ETag, strconv.Itoa(len(want.Body)), page.CacheControl}) {
			t.Fatalf("%v: %q, want %+v", k, got, want)
		}
		for _, values := range [][]string{d.ETag, d.Length, e.CacheControl()} {
			if len(values) != 1 || cap(values) != 1 {
				t.Fatalf("%v: a header value that can grow into its neighbour", k)
			}
		}
	}
	check(e.JWKS(), page.JWKS)
	check(e.Discovery(), page.Discovery)
}

// An empty table finds nothing, however it came to be.
func TestEmptyTable(t *testing.T) {
	k := Key{"oidc.example.com", "/a"}
	full := (*Table)(nil).With(map[Key]*Page{k: testPage("a")})
	for name, table := range map[string]*Table{"nil": nil, "new": (*Table)(nil).With(nil), "emptied": full.With(map[Key]*Page{k: nil})} {
		if _, ok := table.Find(k); ok || table.Len() != 0 {
			t.Errorf("%s: a page was found, %d in all", name, table.Len())
		}
	}
}

// An issuer among 10,000 that changes must not cost the copy of all of them.
func TestSharding(t *testing.T) {
	changes := map[Key]*Page{}
	for i := range 10_000 {
		changes[Key{"oidc.example.com", fmt.Sprintf("/%d", i)}] = testPage("a")
	}
	for i, s := range (*Table)(nil).With(changes).shards {
		if s.count > 120 { // 39 on average
			t.Errorf("shard %d holds %d of 10,000 pages", i, s.count)
		}
	}
}

// A lookup reads one slot of memory that no cache holds: it must be one line of it.
func TestSlotIsACacheLine(t *testing.T) {
	if size := unsafe.Sizeof(slot{}); size != 64 {
		t.Errorf("a slot has %d bytes", size)
	}
}

// Two keys whose hashes are equal are told apart all the same.
func TestEqualHashes(t *testing.T) {
	changes := map[Key]*Page{}
	for i := range 20 {
		changes[Key{"oidc.example.com", fmt.Sprintf("/%d", i)}] = testPage(fmt.Sprint(i))
	}
	s := (*shard)(nil).with(changes, func(Key) uint32 { return 7 })
	for k, page := range changes {
		if found := s.find(7, k); found == nil || (Entry{s, found}).JWKS().Body != page.JWKS.Body {
			t.Errorf("%v: %+v", k, found)
		}
	}
	if found := s.find(7, Key{"oidc.example.com", "/20"}); found != nil {
		t.Errorf("a key that is not there: %+v", found)
	}
}

// What documents that are no longer served had in their headers is forgotten: a writer who changes a lifetime again and
// again must not fill the memory.
func TestHeaderValuesAreForgotten(t *testing.T) {
	k := Key{"oidc.example.com", "/a"}
	table := (*Table)(nil).With(map[Key]*Page{{"oidc.example.com", "/b"}: testPage("b")})
	for i := range 1000 {
		table = table.With(map[Key]*Page{k: testPage(fmt.Sprint(i))})
	}
	held := 0
	for _, s := range table.shards {
		if s != nil {
			held += len(s.values)
		}
	}
	if held > 6 {
		t.Errorf("%d header values for two issuers", held)
	}
	checkPage(t, table, k, testPage("999"))
}
