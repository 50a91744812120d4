package install_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/scene"
)

var errRefused = errors.New("refused")

// sky is a cloud that notes its calls and what it finds published then. The call named fails fails.
type sky struct {
	*install.Run
	store *keystore.Store
	fails string
	whole bool // it has all that is wanted

	mu    sync.Mutex
	calls []string
}

func (s *sky) called(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if list, err := s.store.List(ctx); err == nil && len(list) > 0 {
		name += "+published"
	}
	s.calls = append(s.calls, name)
	if strings.HasPrefix(name, s.fails) && s.fails != "" {
		return errRefused
	}
	return nil
}

func (s *sky) Check(key keystore.VerificationKey) error {
	if key.ID() == "" {
		return errors.New("it has no key")
	}
	return s.called(context.Background(), "check")
}

func (s *sky) Identify(ctx context.Context) error {
	s.Place("Project p")
	return s.called(ctx, "identify")
}

func (s *sky) Plan(ctx context.Context) (plan.Plan, error) {
	make := plan.Action{Change: plan.Change{Verb: plan.Create, Thing: "provider", Name: "x"}, Do: func(ctx context.Context) ([]string, error) {
		return []string{"provider x created"}, s.called(ctx, "make")
	}}
	if s.whole {
		return plan.Of([]string{"provider x found"}), s.called(ctx, "plan")
	}
	return plan.Of(nil, plan.Stage{make}), s.called(ctx, "plan")
}

func (s *sky) DryRun(d install.Documents) (issuerFiles, identities []ccoctl.File) {
	_ = s.called(context.Background(), "dry run")
	return []ccoctl.File{{Name: "keys.json", Data: d.JWKS, Mode: 0o644}}, []ccoctl.File{{Name: "identity.json", Data: d.Discovery, Mode: 0o644}}
}

func (s *sky) Secrets() []ccoctl.File {
	return []ccoctl.File{{Name: ccoctl.ManifestsDir + "/secret.yaml", Data: []byte("x"), Mode: 0o600}}
}

func newSky(t *testing.T, m install.Mode) *sky {
	t.Helper()
	around := scene.New(t)
	around.WriteKeys(t)
	o := around.Options()
	o.Mode = m
	return &sky{store: around.Store, Run: install.NewRun(&o)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A cloud is asked before anything is published, and changed only after that; what it refuses ends the run there.
func TestCreateInAnyCloud(t *testing.T) {
	for _, tt := range []struct {
		name       string
		mode       install.Mode
		fails      string
		identities bool
		calls      string
		files      string // beside the key pair and the issuer's manifest
	}{
		{name: "all", identities: true, calls: "check identify plan plan+published make+published", files: "manifests/secret.yaml " + ccoctl.SigningKeyName},
		{name: "no identities", calls: "check identify plan plan+published make+published"},
		{name: "a preview", mode: install.Preview, identities: true, calls: "check identify plan"},
		{name: "a dry run", mode: install.DryRun, identities: true, calls: "check dry run", files: "identity.json keys.json " + ccoctl.SigningKeyName},
		{name: "a dry run without identities", mode: install.DryRun, calls: "check dry run", files: "keys.json"},
		{name: "a rule is broken", fails: "check", calls: "check"},
		{name: "another project", fails: "identify", calls: "check identify"},
		{name: "not allowed", fails: "plan", calls: "check identify plan"},
		{name: "a change fails", fails: "make", calls: "check identify plan plan+published make+published"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSky(t, tt.mode)
			s.fails = tt.fails
			made, err := s.Create(t.Context(), install.CreateOptions{Identities: tt.identities, Parallel: 1}, s)
			if (err != nil) != (tt.fails != "") || err != nil && !errors.Is(err, errRefused) {
				t.Fatalf("error %v", err)
			}
			if got := strings.Join(s.calls, " "); got != tt.calls {
				t.Errorf("calls %q, want %q", got, tt.calls)
			}
			if (made.Preview != nil) != (tt.mode == install.Preview) || (made.KeySet.Name() == "prod-a") != (err == nil && tt.mode == install.Apply) {
				t.Errorf("made %+v", made)
			}
			if got := s.files(t); got != tt.files {
				t.Errorf("files %q, want %q", got, tt.files)
			}
		})
	}
}

// Manifests of another issuer's cluster are not replaced, in no mode, and nobody is asked. One that cannot be read
// may be anybody's.
func TestCreateInAnothersDirectory(t *testing.T) {
	const foreign = "https://oidc.example.com/foreign"
	for _, tt := range []struct {
		name     string
		manifest string
		adopt    bool
		refused  bool
		said     string // in the error; empty for the other issuer's URL
	}{
		{name: "another issuer", manifest: string(ccoctl.AuthenticationFile(foreign).Data), refused: true},
		{name: "another issuer, as others write it", manifest: "# ours\nspec: {serviceAccountIssuer: \"" + foreign + "\"}\n", refused: true},
		{name: "the cluster moves from there", manifest: string(ccoctl.AuthenticationFile(foreign).Data), adopt: true},
		{name: "the same issuer", manifest: string(ccoctl.AuthenticationFile(newSky(t, install.Apply).IssuerURL).Data)},
		{name: "no issuer", manifest: "kind: Authentication\n"},
		{name: "an empty file", manifest: ""},
		{name: "rubbish", manifest: "{", refused: true, said: "cannot be read, so that nothing says whose manifests would be replaced"},
		{name: "two documents", manifest: string(ccoctl.AuthenticationFile(foreign).Data) + "\n---\nkind: Authentication\n", refused: true, said: "cannot be read"},
		{name: "a character that YAML has not", manifest: string(ccoctl.AuthenticationFile(foreign).Data) + "\n#\x00\n", refused: true, said: "cannot be read"},
		{name: "a long comment", manifest: string(ccoctl.AuthenticationFile(foreign).Data) + "\n#" + strings.Repeat("x", 70<<10), refused: true, said: "is larger than 65536 bytes"},
		{name: "a list in its place", manifest: "spec: {serviceAccountIssuer: [" + foreign + "]}\n", refused: true, said: "cannot be read"},
		{name: "rubbish that is to be replaced", manifest: "{", adopt: true},
	} {
		for _, m := range []install.Mode{install.Apply, install.Preview, install.DryRun} {
			t.Run(fmt.Sprint(tt.name, m), func(t *testing.T) {
				s := newSky(t, m)
				d, err := ccoctl.OpenDir(s.Dir, ccoctl.ManifestsDir)
				must(t, err)
				file := ccoctl.AuthenticationFile("")
				file.Data = []byte(tt.manifest)
				must(t, d.Write(file, s.Secrets()[0]))
				_, err = s.Create(t.Context(), install.CreateOptions{Identities: true, Parallel: 1, Adopt: tt.adopt}, s)
				if !tt.refused {
					must(t, err)
					return
				}
				e, is := errors.AsType[*install.Error](err)
				if !is || e.Problem != install.OthersDir || e.File != d.Path(file.Name) || !strings.Contains(err.Error(), cmp.Or(tt.said, foreign)) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v, want one of %s", err, d.Path(file.Name))
				}
				if len(s.calls) > 0 {
					t.Errorf("calls %q, want none", s.calls)
				}
				if data, err := os.ReadFile(d.Path(file.Name)); err != nil || string(data) != tt.manifest {
					t.Errorf("the manifest is %q, %v now", data, err)
				}
				if got := s.files(t); got != "manifests/secret.yaml" {
					t.Errorf("files %q", got)
				}
			})
		}
	}
}

// A key that another key set publishes or has revoked is refused before anybody is asked and before anything is written.
func TestCreateWithAnothersKey(t *testing.T) {
	for _, tt := range []struct {
		name    string
		others  func(t *testing.T, s keystore.KeySet) keystore.KeySet
		refused string
	}{
		{"published", func(_ *testing.T, s keystore.KeySet) keystore.KeySet { return s }, `is in key set "other" already`},
		{"revoked", func(t *testing.T, s keystore.KeySet) keystore.KeySet {
			s, err := s.Revoke(keystore.Change{At: time.Now(), By: "test", Why: "stolen"}, s.Keys()[0].ID(), keystore.RevokeOptions{LeaveEmpty: true})
			must(t, err)
			return s
		}, `was revoked in key set "other"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSky(t, install.Apply)
			data, err := os.ReadFile(s.Path(ccoctl.PublicKeyName))
			must(t, err)
			keys, err := pubkey.Parse(ccoctl.PublicKeyName, data)
			must(t, err)
			u, err := keystore.ParseIssuerURL("https://oidc.example.com/other", false)
			must(t, err)
			other, err := keystore.New(keystore.Change{At: time.Now(), By: "test"}, keystore.Spec{Name: "other", Issuers: []keystore.IssuerURL{u}, Keys: keys})
			must(t, err)
			_, err = s.store.Replace(t.Context(), "", tt.others(t, other))
			must(t, err)
			_, err = s.Create(t.Context(), install.CreateOptions{Identities: true, Parallel: 1}, s)
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("error %v, want %q", err, tt.refused)
			}
			if e, is := errors.AsType[*install.Error](err); tt.name == "published" && (!is || e.Problem != install.OthersKey || e.KeySet != "other") {
				t.Errorf("error %#v", err)
			}
			if got := strings.Join(s.calls, " "); got != "check+published" {
				t.Errorf("calls %q", got)
			}
			if got := s.files(t); got != "" {
				t.Errorf("files %q", got)
			}
		})
	}
}

// A second run that finds nothing to change plans once and does not wait, if the plan has what trusts the issuer. Any other one waits.
func TestCreateAgain(t *testing.T) {
	for _, tt := range []struct {
		name           string
		planned, whole bool
		calls          string
		waits          bool
	}{
		{name: "nothing to change", planned: true, whole: true, calls: "check+published identify+published plan+published"},
		{name: "something to change", planned: true, calls: "check+published identify+published plan+published plan+published make+published", waits: true},
		{name: "trust is elsewhere", whole: true, calls: "check+published identify+published plan+published", waits: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSky(t, install.Apply)
			var events []install.Event
			var mu sync.Mutex
			s.Report = func(e install.Event) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, e)
			}
			o := install.CreateOptions{Parallel: 1, TrustPlanned: tt.planned}
			_, err := s.Create(t.Context(), o, s)
			must(t, err)
			s.calls, events, s.whole = nil, nil, tt.whole
			_, err = s.Create(t.Context(), o, s)
			must(t, err)
			if got := strings.Join(s.calls, " "); got != tt.calls {
				t.Errorf("calls %q, want %q", got, tt.calls)
			}
			waited := slices.ContainsFunc(events, func(e install.Event) bool { return e.Kind == install.Wait })
			served := slices.ContainsFunc(events, func(e install.Event) bool { return strings.Contains(e.Text, "is served with key") })
			found := slices.ContainsFunc(events, func(e install.Event) bool { return e.Text == "provider x found" })
			if waited != tt.waits || !served || found != tt.whole {
				t.Errorf("waited %t, said that it is served %t, found %t: %+v", waited, served, found, events)
			}
		})
	}
}

// files lists those of the output directory that are not in every one.
func (s *sky) files(t *testing.T) string {
	t.Helper()
	var names []string
	must(t, filepath.WalkDir(s.Dir, func(path string, e os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, s.Dir+"/")
		if err == nil && !e.IsDir() && !slices.Contains([]string{ccoctl.PrivateKeyName, ccoctl.PublicKeyName, ccoctl.AuthenticationFile("").Name}, name) {
			names = append(names, name)
		}
		return err
	}))
	return strings.Join(names, " ")
}

// Where no manifest or signing key can be written, nobody is asked and no key is made: what it is for would be there without it.
func TestCreateIntoLinks(t *testing.T) {
	for _, name := range []string{"manifests", "tls"} {
		for _, m := range []install.Mode{install.Apply, install.Preview, install.DryRun} {
			t.Run(fmt.Sprint(name, m), func(t *testing.T) {
				s := newSky(t, m)
				must(t, os.MkdirAll(s.Dir, 0o700))
				must(t, os.Symlink(t.TempDir(), filepath.Join(s.Dir, name)))
				before := s.files(t)
				_, err := s.Create(t.Context(), install.CreateOptions{Identities: true, Parallel: 1}, s)
				if err == nil || !strings.Contains(err.Error(), name+" in it is not a directory; move it away") {
					t.Errorf("error %v", err)
				}
				if len(s.calls) > 0 {
					t.Errorf("calls %q, want none", s.calls)
				}
				if after := s.files(t); after != before {
					t.Errorf("files %q, not %q", after, before)
				}
			})
		}
	}
}
