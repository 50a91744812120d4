package upload

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/keystore/storetest"
)

// A copy holds a key only by its ID, its material and its algorithm; any other is replaced.
func TestACopyOfAnotherKeyIsReplaced(t *testing.T) {
	rsa := storetest.SyntheticRSA(t, 7)
	another := members(t, storetest.SyntheticRSA(t, 9))
	for name, change := range map[string]func(k map[string]string){
		"nothing":           func(map[string]string) {},
		"another ID":        func(k map[string]string) { k["kid"] += "x" },
		"another algorithm": func(k map[string]string) { k["alg"] = "RS512" },
		"another material":  func(k map[string]string) { k["n"] = another["n"] },
	} {
		w, c := newWorld(t, named()), &fake{}
		w.change(func(s keystore.KeySet) (keystore.KeySet, error) { return s.Add(storetest.Change(0), rsa) })
		w.synced(c)
		right := prints(t, c.jwks)
		c.jwks = changed(t, c.jwks, string(rsa.ID()), change)
		r, err := w.sync(c)
		if err != nil || r.Uploaded != (name != "nothing") || prints(t, c.jwks) != right {
			t.Errorf("%s: uploaded %t, %v, it holds %s", name, r.Uploaded, err, c.jwks)
		}
	}
}

// prints says which keys a JWKS has, whatever its form.
func prints(t *testing.T, jwks []byte) string {
	t.Helper()
	keys, err := pubkey.Parse("the copy", jwks)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, k := range keys {
		all = append(all, fmt.Sprint(k.ID(), k.Alg(), k.Fingerprint()))
	}
	return strings.Join(all, "\n")
}

// members are those of a key as it is uploaded.
func members(t *testing.T, k keystore.VerificationKey) map[string]string {
	t.Helper()
	w, c := newWorld(t, named()), &fake{}
	w.change(func(s keystore.KeySet) (keystore.KeySet, error) { return s.Add(storetest.Change(0), k) })
	w.synced(c)
	var found map[string]string
	changed(t, c.jwks, string(k.ID()), func(k map[string]string) { found = k })
	return found
}

// changed returns a JWKS with one of its keys changed.
func changed(t *testing.T, jwks []byte, kid string, change func(k map[string]string)) []byte {
	t.Helper()
	var set struct {
		Keys []map[string]string `json:"keys"`
	}
	if err := json.Unmarshal(jwks, &set); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(set.Keys, func(k map[string]string) bool { return k["kid"] == kid })
	change(set.Keys[at])
	out, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What is recorded says when this run had uploaded; that of a run that only looked, nothing.
func TestWhatIsRecordedOfAnUpload(t *testing.T) {
	w := newWorld(t, named())
	c := &fake{jwks: []byte(`{"keys":[]}`), ahead: -30 * time.Second, now: func() time.Time { return w.at }}
	for _, uploaded := range []time.Time{w.at, {}} {
		w.synced(c)
		latest := w.record().Latest
		if !latest.Upload.Uploaded.Equal(uploaded) {
			t.Errorf("recorded %+v; want uploaded at %v", latest.Upload, uploaded)
		}
		if latest.ClockAhead == nil || time.Duration(*latest.ClockAhead) != -30*time.Second {
			t.Errorf("this clock is ahead by %v", latest.ClockAhead)
		}
		w.at = w.at.Add(time.Hour)
	}
}

// As many keys as an upload takes are uploaded.
func TestAsManyKeysAsAnUploadTakes(t *testing.T) {
	w, c := newWorld(t, named()), &fake{}
	for range 7 {
		w.add()
	}
	if r, err := w.sync(c); err != nil || !r.Uploaded || strings.Count(string(c.jwks), `"kid"`) != 8 {
		t.Errorf("%+v, %v, %s", r, err, c.jwks)
	}
}
