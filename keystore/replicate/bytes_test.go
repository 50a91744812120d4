package replicate_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/replicate"
	"github.com/keypost/keypost/keystore/storetest"
)

// notations are documents that this version would write otherwise, or not at all.
func notations(t *testing.T) map[string][]byte {
	t.Helper()
	fixture := func(name string) string {
		data, err := os.ReadFile(filepath.Join("..", "testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	full := fixture("prod-a.yaml")
	set, err := keystore.Parse("prod-a", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := set.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(full, "spec:\n")
	return map[string][]byte{
		"as this version writes it":     []byte(full),
		"of a version before":           []byte(fixture("fa747eb-rotation.yaml")),
		"of a newer minor version":      []byte(strings.Replace(strings.Replace(full, "spec:\n", "spec:\n  colour: [red, {shade: 0x10}]\n", 1), "kind: KeySet\n", "kind: KeySet\nstatus: {seen: \"on\"}\n", 1)),
		"with comments and blank lines": []byte("# from Git\n\n" + strings.Replace(full, "spec:\n", "spec:   # here it is\n\n", 1)),
		"with other line ends":          []byte(strings.ReplaceAll(full, "\n", "\r\n")),
		"with the members turned round": []byte("spec:\n" + rest + "kind: KeySet\nmetadata: {name: prod-a}\napiVersion: keypost.dev/v1\n"),
		"as JSON":                       append([]byte(" "), asJSON...),
		"without a last line end":       bytes.TrimRight([]byte(full), "\n"),
	}
}

// Documents arrive byte for byte, by Copy and by Mirror, and nothing is written a second time.
func TestDocumentsArriveByteForByte(t *testing.T) {
	for name, doc := range notations(t) {
		t.Run(name, func(t *testing.T) {
			for how, replicateOnce := range map[string]func(from, to keystore.Backend) error{
				"copy": func(from, to keystore.Backend) error {
					_, err := replicate.Copy(t.Context(), from, to, false)
					return err
				},
				"mirror": func(from, to keystore.Backend) error {
					return replicate.NewMirror(replicate.MirrorConfig{From: from, To: to, Poll: time.Second, Log: zap.NewNop()}).Pass(t.Context())
				},
			} {
				from := storetest.NewMemory(t)
				from.Set("prod-a", doc)
				dir := t.TempDir()
				to, err := filestore.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				var was keystore.Revision
				for n := range 2 {
					if err := replicateOnce(from, to); err != nil {
						t.Fatalf("%s: %v", how, err)
					}
					got, err := os.ReadFile(filepath.Join(dir, "prod-a.yaml"))
					if err != nil || !bytes.Equal(got, doc) {
						t.Fatalf("%s: the copy is (error %v)\n%q\nwant\n%q", how, err, got, doc)
					}
					_, rev, err := to.Get(t.Context(), "prod-a")
					if err != nil || n > 0 && rev != was {
						t.Errorf("%s: it was written again (error %v)", how, err)
					}
					was = rev
				}
			}
		})
	}
}

// A document that says the same in another notation is not a reason to write: a store that keeps a notation of its own
// would be written again by each copying.
func TestAnotherNotationIsUnchanged(t *testing.T) {
	all := notations(t)
	from, to := storetest.NewMemStore(t), storetest.NewMemStore(t)
	from.Set("prod-a", all["as this version writes it"])
	wantVerdicts(t, verdicts(t, from, to, false), map[keystore.Name]string{"prod-a": "copied"})
	from.Set("prod-a", all["with comments and blank lines"])
	wantVerdicts(t, verdicts(t, from, to, false), map[keystore.Name]string{"prod-a": "unchanged"})
	m := replicate.NewMirror(replicate.MirrorConfig{From: from, To: to, Poll: time.Second, Log: zap.NewNop()})
	writes := to.Writes()
	if err := m.Pass(t.Context()); err != nil || to.Writes() != writes {
		t.Errorf("%d writes, error %v", to.Writes()-writes, err)
	}
}
