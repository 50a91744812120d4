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
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/keystore/storetest"
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
		{name: "a long comment", manifest: string(ccoctl.AuthenticationFile(foreign).Data) + "\n#" + strings.Repeat("x", 70<<10), refused: true, said: "is larger than 65536 bytes"},
		{name: "rubbish that is to be replaced", manifest: "{", adopt: true},
	} {
		for _, m := range []install.Mode{install.Apply, install.Preview, install.DryRun} {
			t.Run(fmt.Sprint(tt.name, m), func(t *testing.T) {
				s := newSky(t, m)
				file := ccoctl.AuthenticationFile("")
				file.Data = []byte(tt.manifest)
				must(t, ccoctl.Write(s.Dir, file, s.Secrets()[0]))
				path := filepath.Join(s.Dir, file.Name)
				s.Adopt = tt.adopt
				_, err := s.Create(t.Context(), install.CreateOptions{Identities: true, Parallel: 1}, s)
				if !tt.refused {
					must(t, err)
					return
				}
				e, is := errors.AsType[*install.Error](err)
				if !is || e.Problem != install.OthersDir || e.File != path || !strings.Contains(err.Error(), cmp.Or(tt.said, foreign)) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v, want one of %s", err, path)
				}
				if len(s.calls) > 0 {
					t.Errorf("calls %q, want none", s.calls)
				}
				if data, err := os.ReadFile(path); err != nil || string(data) != tt.manifest {
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

const oldIssuer = "https://old.example.com/prod-a"

// record keeps the time of a switch, and what was written.
type record struct {
	at    time.Time
	wrote []time.Time
}

func (r *record) MovedAt(context.Context) (time.Time, error) { return r.at, nil }

func (r *record) SetMovedAt(_ context.Context, at time.Time) ([]string, error) {
	r.wrote = append(r.wrote, at)
	return []string{"recorded"}, nil
}

// The time of a switch is recorded when it is first seen, taken back if the cluster was switched back, and left alone by a preview.
func TestTheTimeOfASwitch(t *testing.T) {
	long := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		signs  string
		since  time.Time
		mode   install.Mode
		writes string // "now" or "never", for the zero time
		gate   gate.Gate
	}{
		{name: "first seen", signs: scene.IssuerURL, writes: "now", gate: gate.GateTokens},
		{name: "seen long ago", signs: scene.IssuerURL, since: long},
		{name: "not switched", signs: oldIssuer, gate: gate.GateSigning},
		{name: "switched back", signs: oldIssuer, since: long, writes: "never", gate: gate.GateSigning},
		{name: "first seen by a preview", mode: install.Preview, signs: scene.IssuerURL, gate: gate.GateTokens},
		{name: "switched back, seen by a preview", mode: install.Preview, signs: oldIssuer, since: long, gate: gate.GateSigning},
	} {
		t.Run(tt.name, func(t *testing.T) {
			around := scene.New(t)
			plane := scene.NewPlane(t, storetest.Key(t), tt.signs)
			plane.Pods = asking(3) // which is longer than what is declared
			o := around.Options()
			o.Mode, o.Store = tt.mode, install.KeyStore{}
			kept := &record{at: tt.since}
			shut, err := install.NewRun(&o).MayFinish(t.Context(), install.Move{Old: oldIssuer, Cluster: plane.Access(t), TokenLifetime: time.Hour}, []string{"openshift"}, kept)
			closed, _ := errors.AsType[*keystore.NotYetError](err)
			if (shut != nil) != (tt.gate != "" && tt.mode == install.Preview) {
				t.Errorf("gate %v beside error %v", shut, err)
			}
			if shut != nil {
				closed = shut
			}
			if (err != nil) != (tt.gate != "" && shut == nil) || tt.gate != "" && (closed == nil || closed.Gate != tt.gate) {
				t.Errorf("error %v, gate %v, want gate %q", err, shut, tt.gate)
			}
			if tt.gate == gate.GateTokens && closed != nil && closed.Terms[0].Duration != 3*time.Hour {
				t.Errorf("it waits for %+v", closed.Terms)
			}
			var wrote []string
			for _, at := range kept.wrote {
				switch {
				case at.IsZero():
					wrote = append(wrote, "never")
				case time.Since(at) < time.Minute:
					wrote = append(wrote, "now")
				default:
					wrote = append(wrote, at.String())
				}
			}
			if strings.Join(wrote, " ") != tt.writes {
				t.Errorf("recorded %q, want %q", wrote, tt.writes)
			}
			if told := around.Reported(); strings.Contains(told, "recorded") != (tt.writes != "") {
				t.Errorf("it told %q", told)
			}
		})
	}
}

// asking is a list of one pod, whose token for OpenShift lives for so many hours.
func asking(hours int) string {
	return fmt.Sprintf(`{"items":[{"metadata":{"namespace":"ns","name":"pod"},"spec":{"volumes":[{"name":"t","projected":{"sources":[`+
		`{"serviceAccountToken":{"path":"token","audience":"openshift","expirationSeconds":%d}}]}}]}}]}`, hours*3600)
}

// A new key set's policy has the longest lifetime that is known, and none that nobody knows.
func TestTheLongestLifetimeCounts(t *testing.T) {
	hours := func(n int) *keystore.Duration {
		if n == 0 {
			return nil
		}
		return keystore.DurationPtr(time.Duration(n) * time.Hour)
	}
	for _, tt := range []struct{ policy, declared, asked, want int }{ // in hours; 0 is none
		{want: 0},
		{asked: 1, want: 1},
		{policy: 2, want: 2},
		{policy: 2, asked: 1, want: 2},
		{policy: 2, asked: 2, want: 2},
		{policy: 2, asked: 3, want: 3},
		{policy: 3, declared: 2, want: 2}, // what is declared for the move takes the policy's place
		{declared: 2, asked: 3, want: 3},
		{declared: 2, asked: 1, want: 2},
	} {
		around := scene.New(t)
		key := storetest.Key(t)
		plane := scene.NewPlane(t, key, oldIssuer)
		if tt.asked > 0 {
			plane.Pods = asking(tt.asked)
		}
		o := around.Options()
		o.Policy.TokenLifetime = hours(tt.policy)
		p, err := install.NewRun(&o).MovedKeys(t.Context(), install.Move{Old: oldIssuer, Cluster: plane.Access(t), TokenLifetime: time.Duration(tt.declared) * time.Hour,
			OldKeys: func(context.Context) ([]keystore.VerificationKey, error) { return []keystore.VerificationKey{key}, nil }}, []string{"openshift"})
		must(t, err)
		if got := p.Policy.TokenLifetime; (got == nil) != (tt.want == 0) || got != nil && *got != *hours(tt.want) {
			t.Errorf("%+v: lifetime %v", tt, got)
		}
	}
}

// late is a cloud during whose first plan somebody else publishes the key set.
type late struct {
	*sky
	publish func()
}

func (l *late) Plan(ctx context.Context) (plan.Plan, error) {
	p, err := l.sky.Plan(ctx)
	if l.publish != nil {
		l.publish()
		l.publish = nil
	}
	return p, err
}

// What somebody else publishes meanwhile ends a run. The next one gives the relying party a copy of that, and not of what was going to be.
func TestTheCopyIsOfWhatIsPublished(t *testing.T) {
	around := scene.New(t)
	key, second := around.WriteKeys(t), storetest.Key(t)
	o := around.Options()
	l := &late{sky: &sky{store: around.Store, Run: install.NewRun(&o)}}
	l.publish = func() {
		s, err := keystore.New(keystore.Change{At: time.Now()}, keystore.Spec{Name: "theirs", Issuers: storetest.URLs(t, scene.IssuerURL), Dev: true,
			Keys: []keystore.VerificationKey{key, second}, Policy: o.Policy})
		must(t, err)
		must(t, keystore.Create(t.Context(), around.Store, s))
	}
	var copies []string
	keep := func(stored keystore.KeySet, jwks []byte) {
		copies = append(copies, string(stored.Name())+" "+string(jwks))
	}
	create := install.CreateOptions{Parallel: 1, TrustPlanned: true, Copy: keep}
	if _, err := l.Create(t.Context(), create, l); err == nil || !strings.Contains(err.Error(), `"theirs" has that issuer URL already`) {
		t.Errorf("error %v", err)
	}
	made, err := l.Create(t.Context(), create, l)
	must(t, err)
	if made.KeySet.Name() != "theirs" || strings.Contains(copies[0], string(second.ID())) || !strings.Contains(copies[1], string(second.ID())) ||
		!strings.Contains(copies[1], string(key.ID())) ||
		!strings.HasPrefix(copies[0], " ") || !strings.HasPrefix(copies[1], "theirs ") {
		t.Errorf("made %s; copies %q", made.KeySet.Name(), copies)
	}
}

// A cluster whose key is retired would sign tokens that are soon trusted no more: nothing is made for it. Neither is anything for one
// whose key is not published, or is another one.
func TestKeysThatMayNotSign(t *testing.T) {
	const past = -1000 * time.Hour
	for _, tt := range []struct {
		name    string
		state   keystore.State
		problem install.Problem
	}{{"active", keystore.Active, 0}, {"next", keystore.Next, 0}, {"retired", keystore.Retired, install.KeyRetired}, {"not published", "", install.KeyNotPublished}, {"revoked", "revoked", install.KeyNotPublished}} {
		t.Run(tt.name, func(t *testing.T) {
			around := scene.New(t)
			key := around.WriteKeys(t)
			first := storetest.Key(t)
			o := around.Options()
			o.Name = "named-otherwise"
			if tt.state == keystore.Active {
				first, key = key, first
			}
			force := keystore.Change{At: time.Now().Add(past), Why: "test", Force: true}
			s, err := keystore.New(force, keystore.Spec{Name: "prod-a", Issuers: storetest.URLs(t, scene.IssuerURL), Dev: true, Keys: []keystore.VerificationKey{first}, Policy: o.Policy})
			must(t, err)
			if tt.state == "revoked" {
				s, err = s.Add(force, key)
				must(t, err)
				s, err = s.Revoke(force, key.ID(), keystore.RevokeOptions{})
				must(t, err)
			}
			if tt.state == keystore.Next || tt.state == keystore.Retired {
				s, err = s.Add(force, key)
				must(t, err)
			}
			if tt.state == keystore.Retired {
				s, err = s.Retire(force, key.ID(), keystore.Evidence{Statement: "never used"})
				must(t, err)
			}
			must(t, keystore.Create(t.Context(), around.Store, s))
			c := &sky{store: around.Store, Run: install.NewRun(&o), whole: true}
			_, err = c.Create(t.Context(), install.CreateOptions{Parallel: 1, TrustPlanned: true}, c)
			problem := install.Problem(0)
			if e, is := errors.AsType[*install.Error](err); is {
				problem = e.Problem
				if e.KeySet != "prod-a" || strings.Contains(err.Error(), "never comes back") != (tt.state == "revoked") {
					t.Errorf("it names key set %q: %v", e.KeySet, err)
				}
			}
			if (err != nil) != (tt.problem != 0) || problem != tt.problem {
				t.Errorf("error %v", err)
			}
			if called := slices.ContainsFunc(c.calls, func(s string) bool { return strings.HasPrefix(s, "plan") }); called != (err == nil) {
				t.Errorf("calls %q and error %v", c.calls, err)
			}
			if told := around.Reported(); strings.Contains(told, "is next in key set") != (tt.state == keystore.Next) {
				t.Errorf("it told\n%s", told)
			}
		})
	}
}

// Whatever has the name of one half of a key pair, looking for the pair ends, and nothing is made.
func TestCreateKeyPairReadsFilesOnly(t *testing.T) {
	for _, half := range []string{ccoctl.PublicKeyName, ccoctl.PrivateKeyName} {
		dir := t.TempDir()
		path := filepath.Join(dir, half)
		must(t, syscall.Mkfifo(path, 0o600))
		if err := install.CreateKeyPair(install.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), path+" is not a regular file") {
			t.Errorf("error %v", err)
		}
		if there, err := os.ReadDir(dir); err != nil || len(there) != 1 {
			t.Errorf("made %v: %v", there, err)
		}
	}
}

// A key that another user can have put there is not taken.
func TestCreateKeyPairInADirectoryOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	t.Setenv("SUDO_UID", "")
	const other = 65534
	dir := t.TempDir()
	o := install.Options{Dir: dir}
	must(t, install.CreateKeyPair(o))
	must(t, os.Chown(dir, other, other)) // in a container root writes to what its user has mounted
	must(t, install.CreateKeyPair(o))
	must(t, os.Chown(filepath.Join(dir, ccoctl.PrivateKeyName), other, other))
	if err := install.CreateKeyPair(o); err == nil || !strings.Contains(err.Error(), ccoctl.PrivateKeyName+" has the owner 65534") {
		t.Errorf("error %v", err)
	}
}
