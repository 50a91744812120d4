package storetest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
)

// edited returns s with its spec changed as somebody with an editor would.
func edited(t testing.TB, s keystore.KeySet, edit func(spec map[string]any)) keystore.KeySet {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var d map[string]any
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	edit(d["spec"].(map[string]any)) //nolint:forcetypeassert // every document has one
	if data, err = json.Marshal(d); err != nil {
		t.Fatal(err)
	}
	changed, err := keystore.Parse(s.Name(), data)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// leadBack: a single write must not make a key set that can never be changed again.
func leadBack(x *suite) {
	k := Key(x)
	x.replace("", edited(x, KeySet(x, "prod-a", k), func(spec map[string]any) { spec["generation"] = keystore.MaxGeneration }))
	revoke := func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Revoke(Change(time.Hour), k.ID(), keystore.RevokeOptions{LeaveEmpty: true})
	}
	if _, err := keystore.Update(x.Context(), x.Store, "prod-a", revoke); err == nil {
		x.Error("a change of the highest generation was stored")
	}
	accepted := x.update("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Accept(Change(time.Hour), 7, keystore.Decided{})
	})
	if accepted.Generation() != 8 {
		x.Errorf("accepted at generation %d, want 8", accepted.Generation())
	}
	if s := x.update("prod-a", revoke); len(s.Keys()) != 0 || s.Generation() != 9 {
		x.Errorf("then revoked at generation %d, %d keys are left", s.Generation(), len(s.Keys()))
	}
}
