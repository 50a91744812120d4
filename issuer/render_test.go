package issuer

import (
	"bytes"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/keystore/storetest"
)

// The literals were computed by a program of its own (affine arithmetic on the curves, DER put together by hand), not
// by this one. Private halves are small numbers, chosen so that a coordinate begins with a zero byte: a rendering that
// drops it makes one token in 128 fail.
const (
	goldenP256 = `{"kty":"EC","alg":"ES256","use":"sig","kid":"6AzDqd_7nl93UJv4oXJxkwgdRG8mXMK8lIIemYojR8E","crv":"P-256","x":"mGriUG8f8QTQQjCGHY9LSY9LxMbQCbMPdUTcEpuC0o0","y":"ADzMwKZGDgrjKKTZfTx7YdhvxiicGJ8lJREMRBuwfpc"}`
	goldenX256 = `{"kty":"EC","alg":"ES256","use":"sig","kid":"PU-ZT8gvHRc8bTJuBeD4v_01gtCOH62KNDVADlNgBYM","crv":"P-256","x":"AFVDiUrz0A7X10Cr29dclrBod7eH219w7qeLkKjXwAo","y":"u0yFo9jqKe-q-iRAaRLdhNWxTcMr9lbvbGvVil2UP5I"}`
	goldenP384 = `{"kty":"EC","alg":"ES384","use":"sig","kid":"aLRC1zBhEZADCH9B5zLguq5JlVnbJDYk6e5tGkaS3R4","crv":"P-384","x":"0DqnSPX0jrPgxUtoPyXS4tfX4yASgqlbV6Wf-4-Uz0xDsRB8qUS5IRw1ERLeFu0Y","y":"AAoIxgLcXgAx2tCIwZMF9rJSorw_JF96W4C0hMe5n2mBwyN0xxSnaDJV9TMfZrsG"}`
	goldenX384 = `{"kty":"EC","alg":"ES384","use":"sig","kid":"QeX6rPebzK17ohsItdP2egjLrmVJe82t7UrneuIsvwc","crv":"P-384","x":"AE0QSybuVnH3LBDJhoQdPmXSheJRYWG3uqNBsSYxueMrbw1YlthDHFHV2To3y8kO","y":"8RoeP4t7kFOO5CzADuk0puLuJVQWB9j7ZceosR4viGhTiG7vOGXskzIAufJVmfKf"}`
	goldenP521 = `{"kty":"EC","alg":"ES512","use":"sig","kid":"egeF8hTvkoFDQ-hbHs3bCAHKNCDfUdO5OyOTgJ49voQ","crv":"P-521","x":"AXU5Dmbpc8nvn_tgUzkHCd42CbJLJNEIkoJ9aKeK25iSK0CjjziZ0eNjggIxDc-Z8jMXi_-HO7AbRLwWqG6HHOve","y":"AADrd1exXLrze4Sr7SdSvSajtD5gVWlCNL_Yfu76jmczhK9esk8PJJGerQIQgwBeTl8lpqwlVZxOZZk38T1MHHbH"}`
	goldenX521 = `{"kty":"EC","alg":"ES512","use":"sig","kid":"yDGXZBigWIpH_TIzERp7l9_UICf6lQgwNgO7AUcg9fc","crv":"P-521","x":"AABgqI2FlqLGWXstxORl39fnSgvLe4Y_VvIcFBSllYtipJWZb9hrjp54pnEseIfnXfzpcqBOEsuc-eAy_yrBr_8Z","y":"ATPR_AqtuggGE1eNKYDHf-Y8t80KYNGt8rLlCNmsniqLHQxTiNHLsF8OLFjQHLzAWUWSk9SYKLYfR8Hy7euJFFKK"}`
)

// The modulus 2^2047+3 stands for a real one: 256 bytes that begin with 0x80.
var goldenRSA = `{"kty":"RSA","alg":"RS256","use":"sig","kid":"mcKUK0ODa4NvnM4T2o1LPg9qTgGunV_vK8TA9SMO2H4","n":"g` + strings.Repeat("A", 340) + `w","e":"AQAB"}`

func rendered(t testing.TB, s keystore.KeySet) string {
	t.Helper()
	body, err := RenderJWKS(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// imported returns a key under a kid and alg of somebody's choice, as a taken-over JWKS brings it.
func imported(t testing.TB, k keystore.VerificationKey, kid, alg string) keystore.VerificationKey {
	t.Helper()
	j, err := json.Marshal(jose.JSONWebKey{Key: k.Key(), KeyID: kid, Algorithm: alg, Use: "sig"})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := pubkey.Parse("a test", j)
	if err != nil {
		t.Fatal(err)
	}
	return keys[0]
}

// plainRSA has a modulus whose text anybody can check by eye. Nobody would take such a key in.
func plainRSA(t testing.TB, n int64) keystore.VerificationKey {
	t.Helper()
	modulus := new(big.Int).Lsh(big.NewInt(1), 2047)
	k, err := keystore.NewPublic(&rsa.PublicKey{N: modulus.Add(modulus, big.NewInt(2*n+1)), E: 65537})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestRenderJWKS(t *testing.T) {
	rsaKey := plainRSA(t, 1)
	takenOver := strings.NewReplacer(`"alg":"RS256"`, `"alg":"RS512"`, "mcKUK0ODa4NvnM4T2o1LPg9qTgGunV_vK8TA9SMO2H4", `2020-<\u0022old\u0022>\u0026co`)
	for name, tc := range map[string]struct {
		keys []keystore.VerificationKey
		want string
	}{
		"none":                  {nil, `{"keys":[]}`},
		"RSA":                   {[]keystore.VerificationKey{rsaKey}, `{"keys":[` + goldenRSA + `]}`},
		"P-256, zero in y":      {[]keystore.VerificationKey{keyOn(t, elliptic.P256(), 43)}, `{"keys":[` + goldenP256 + `]}`},
		"P-256, zero in x":      {[]keystore.VerificationKey{keyOn(t, elliptic.P256(), 379)}, `{"keys":[` + goldenX256 + `]}`},
		"P-384, zero in y":      {[]keystore.VerificationKey{keyOn(t, elliptic.P384(), 176)}, `{"keys":[` + goldenP384 + `]}`},
		"P-384, zero in x":      {[]keystore.VerificationKey{keyOn(t, elliptic.P384(), 197)}, `{"keys":[` + goldenX384 + `]}`},
		"P-521, two zeros in y": {[]keystore.VerificationKey{keyOn(t, elliptic.P521(), 73)}, `{"keys":[` + goldenP521 + `]}`},
		"P-521, two zeros in x": {[]keystore.VerificationKey{keyOn(t, elliptic.P521(), 273)}, `{"keys":[` + goldenX521 + `]}`},
		"several, sorted by kid": {
			[]keystore.VerificationKey{rsaKey, keyOn(t, elliptic.P384(), 176), keyOn(t, elliptic.P256(), 43)},
			`{"keys":[` + goldenP256 + `,` + goldenP384 + `,` + goldenRSA + `]}`},
		"a kid and alg that were imported": {
			[]keystore.VerificationKey{imported(t, rsaKey, `2020-<"old">&co`, "RS512")}, `{"keys":[` + takenOver.Replace(goldenRSA) + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := rendered(t, doc{name: "a", generation: 1, keys: tc.keys}.parse(t))
			if canonical(t, got) != canonical(t, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if !strings.Contains(name, "imported") && got != tc.want { // how JSON escapes a kid is nobody's business
				t.Errorf("other bytes:\ngot  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// canonical sorts members, so that two spellings of one value are equal.
func canonical(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRenderDiscovery(t *testing.T) {
	const head, tail = `,"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":`, `,"claims_supported":["aud","exp","iat","iss","sub"]}`
	urls := []string{"https://oidc.example.com/prod/a", "https://a.oidc.example.com"}
	for name, tc := range map[string]struct {
		keys []keystore.VerificationKey
		algs string
	}{
		"RSA":           {[]keystore.VerificationKey{plainRSA(t, 1), plainRSA(t, 2)}, `["RS256"]`},
		"one of a kind": {[]keystore.VerificationKey{keyOn(t, elliptic.P521(), 1), plainRSA(t, 1), keyOn(t, elliptic.P256(), 1), keyOn(t, elliptic.P384(), 1)}, `["ES256","ES384","ES512","RS256"]`},
		"no key":        {nil, `["RS256"]`},
	} {
		s := doc{name: "a", generation: 1, issuers: urls, keys: tc.keys}.parse(t)
		for i, u := range s.Issuers() {
			got, err := RenderDiscovery(s, u)
			if err != nil {
				t.Fatal(err)
			}
			want := `{"issuer":"` + urls[i] + `","jwks_uri":"` + urls[i] + `/keys.json"` + head + tc.algs + tail
			if string(got) != want {
				t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
			}
		}
	}
}

// Replicas read documents whose keys stand in any order, and must serve equal bytes.
func TestBytesDoNotDependOnOrder(t *testing.T) {
	d := doc{name: "a", generation: 1}
	for n := range int64(12) {
		d.keys = append(d.keys, key(t, n+1))
		d.states = append(d.states, states[n%3])
	}
	want := rendered(t, d.parse(t))
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		rnd.Shuffle(len(d.keys), func(i, j int) {
			d.keys[i], d.keys[j] = d.keys[j], d.keys[i]
			d.states[i], d.states[j] = d.states[j], d.states[i]
		})
		if got := rendered(t, d.parse(t)); got != want {
			t.Fatalf("another order, other bytes:\n%s\n%s", got, want)
		}
	}
}

// checkPublic fails when published bytes hold anything but public members.
func checkPublic(t testing.TB, s keystore.KeySet) {
	t.Helper()
	bodies := [][]byte{[]byte(rendered(t, s))}
	for _, u := range s.Issuers() {
		body, err := RenderDiscovery(s, u)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, body)
	}
	for _, body := range bodies {
		if bytes.Contains(body, []byte("-----BEGIN")) && !bytes.Contains(body, []byte(`"kid":"-----BEGIN`)) { // a signer may choose any kid
			t.Fatalf("published bytes hold a PEM header: %s", body)
		}
	}
	var set struct{ Keys []map[string]json.RawMessage }
	if err := json.Unmarshal(bodies[0], &set); err != nil {
		t.Fatal(err)
	}
	for _, k := range set.Keys {
		for member := range k {
			if !strings.Contains(" kty alg use kid n e crv x y ", " "+member+" ") {
				t.Fatalf("published key has the member %q", member)
			}
		}
	}
}

// FuzzPublished publishes every input that keystore accepts as public keys.
func FuzzPublished(f *testing.F) {
	for _, seed := range corpus(f) {
		f.Add(seed)
	}
	for _, k := range []keystore.VerificationKey{storetest.SyntheticRSA(f, 1), keyOn(f, elliptic.P256(), 43), keyOn(f, elliptic.P521(), 73)} {
		j, err := json.Marshal(jose.JSONWebKey{Key: k.Key(), KeyID: `-----BEGIN "PRIVATE KEY"`, Algorithm: k.Alg()})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(j)
		f.Add(bytes.Replace(j, []byte("{"), []byte(`{"d":"AQAB",`), 1))
		f.Add(append(append([]byte(`{"keys":[`), j...), "]}"...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := pubkey.Parse("fuzz", data)
		if err != nil {
			return
		}
		s, err := keystore.New(storetest.Change(0), keystore.Spec{Name: "a", Issuers: storetest.URLs(t, urlA), Keys: keys})
		if err != nil {
			return
		}
		checkPublic(t, s)
	})
}

// corpus returns the inputs that keystore's own fuzz targets keep.
func corpus(t testing.TB) [][]byte {
	t.Helper()
	files, err := filepath.Glob("../keystore/testdata/fuzz/*/*")
	if err != nil {
		t.Fatal(err)
	}
	var inputs [][]byte
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			for _, form := range []string{"[]byte(", "string("} {
				quoted, ok := strings.CutPrefix(strings.TrimSuffix(strings.TrimSpace(line), ")"), form)
				if text, err := strconv.Unquote(quoted); ok && err == nil {
					inputs = append(inputs, []byte(text))
				}
			}
		}
	}
	return inputs
}

// The same for whole documents that keystore's fuzz targets keep, and for keys of every kind.
func TestPublishedBytesArePublic(t *testing.T) {
	published := 0
	for _, data := range corpus(t) {
		for _, name := range []keystore.Name{"a", "prod-a", "x"} {
			if s, err := keystore.Parse(name, data); err == nil {
				checkPublic(t, s)
				published++
			}
		}
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for n := range int64(60) {
		k := plainRSA(t, n)
		if n%2 == 0 {
			k = keyOn(t, []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}[n/2%3], 1+rnd.Int64N(1<<60))
		}
		checkPublic(t, doc{name: "a", generation: 1, keys: []keystore.VerificationKey{k}}.parse(t))
	}
	t.Logf("%d documents of the corpus were accepted", published)
}
