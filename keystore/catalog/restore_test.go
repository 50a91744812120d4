package catalog_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/storetest"
)

// Over whatever is stored, the restored version is later than it and has every line in gone of both.
func TestRestore(t *testing.T) {
	a, b := storetest.Key(t), storetest.Key(t)
	good := storetest.KeySet(t, "prod-a", a, b)
	later := func(s keystore.KeySet, err error) keystore.KeySet {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	revoked := later(good.Revoke(storetest.Change(time.Hour), a.ID(), keystore.RevokeOptions{}))
	over := later(good.Withdraw(storetest.Change(365 * 24 * time.Hour)))
	for name, tc := range map[string]struct {
		stored     string
		force      bool
		err        error
		notOlder   bool
		generation int64
		gone       int
	}{
		"lost":                                {stored: "", generation: 2},
		"junk":                                {stored: "junk", notOlder: true},
		"the same":                            {stored: storetest.Text(t, good), err: catalog.ErrStored},
		"of the same generation":              {stored: storetest.Text(t, revoked), notOlder: true},
		"that one, by force":                  {stored: storetest.Text(t, revoked), force: true, generation: 2, gone: 1},
		"withdrawn":                           {stored: storetest.Text(t, over), force: true, err: catalog.ErrWithdrawn},
		"a merge of two versions":             {stored: "<<<<<<<\n" + storetest.Text(t, good) + "=======\n" + storetest.Text(t, revoked) + ">>>>>>>\n", notOlder: true},
		"broken, of an unreadable generation": {stored: strings.Replace(storetest.Text(t, revoked), "generation: 1", "generation: \"1\"", 1), notOlder: true},
		"broken, by force":                    {stored: "kind; KeySet", force: true, generation: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := storetest.Change(2 * time.Hour)
			c.Force = tc.force
			stored, loaded := keystore.Parse("prod-a", []byte(tc.stored))
			if tc.stored == "" {
				loaded = keystore.ErrNotFound
			}
			s, err := catalog.Restore(c, good, stored, loaded)
			if _, notOlder := errors.AsType[*catalog.NotOlderError](err); notOlder != tc.notOlder || !notOlder && !errors.Is(err, tc.err) {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			_, barred := s.GoneLine(a)
			if s.Generation() != tc.generation || len(s.Gone()) != tc.gone || barred != (tc.gone > 0) || len(s.Keys()) != 2-tc.gone {
				t.Errorf("generation %d, %d keys, gone %v", s.Generation(), len(s.Keys()), s.Gone())
			}
			if _, err := keystore.Parse("prod-a", []byte(storetest.Text(t, s))); err != nil {
				t.Error(err)
			}
		})
	}
}
