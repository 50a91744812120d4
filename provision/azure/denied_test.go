package azure_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/iam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakeazure"
)

// command is one of keypost azure, and what is there before.
type command struct {
	name  string
	setUp func(t *testing.T, w *world) func(context.Context) error
}

func commands() []command {
	installed := func(t *testing.T, w *world, list ...request) {
		t.Helper()
		_, err := azure.CreateIdentities(t.Context(), w.identities(t, list...))
		must(t, err)
	}
	return []command{
		{"create-managed-identities", func(t *testing.T, w *world) func(context.Context) error {
			installed(t, w, usual()[:2]...)
			o := w.identities(t, usual()[1:]...)
			o.Prune, o.Tags = true, map[string]string{"team": "a"}
			return func(ctx context.Context) error {
				_, err := azure.CreateIdentities(ctx, o)
				return err
			}
		}},
		{"delete", func(t *testing.T, w *world) func(context.Context) error {
			installed(t, w, usual()[:2]...)
			return func(ctx context.Context) error {
				_, err := azure.Delete(ctx, azure.DeleteOptions{Options: w.options(), Group: true})
				return err
			}
		}},
	}
}

// subscription is what the subscription holds, without what differs from one making to another.
func (w *world) subscription() string {
	s := w.State()
	var b strings.Builder
	for _, g := range s.Groups {
		fmt.Fprintf(&b, "group %s %v\n", g.Name, g.Tags)
	}
	principals, roles := map[string]string{}, map[string]string{}
	for _, i := range s.Identities {
		principals[i.PrincipalID] = i.Name
		fmt.Fprintf(&b, "identity %s %v\n", i.Name, i.Tags)
	}
	for _, c := range s.Credentials {
		fmt.Fprintf(&b, "credential %s %s %s %v\n", c.ID, c.Issuer, c.Subject, c.Audiences)
	}
	for _, d := range s.Definitions {
		roles[d.Name] = d.RoleName
		fmt.Fprintf(&b, "role %s %q %v %+v\n", d.RoleName, d.Description, d.Scopes, d.Permissions)
	}
	var assigned []string
	for _, a := range s.Assignments {
		role := a.Role[strings.LastIndexByte(a.Role, '/')+1:]
		if roles[role] != "" {
			role = roles[role]
		}
		assigned = append(assigned, fmt.Sprintf("%s has %s at %s", principals[a.Principal], role, a.Scope))
	}
	return sorted(b.String(), assigned)
}

// Whichever permission is missing, a command that ends well has done all, and one that may not read what is there has changed nothing.
// With the permission it is done.
func TestADeniedPermissionIsToldAndNothingIsHalfRead(t *testing.T) {
	t.Parallel()
	for _, c := range commands() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var done string
			writes := map[string]bool{}
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fakeazure.Options{})
				run := c.setUp(t, w)
				w.ResetCalls()
				must(t, run(t.Context()))
				done = w.subscription()
				for _, call := range w.Calls() {
					if call.Service != "login" && call.Permission != "" { // polls need none
						writes[call.Permission] = writes[call.Permission] || call.Write
					}
				}
			})
			if len(writes) < 4 {
				t.Fatalf("it calls %v", writes)
			}
			for permission, write := range writes {
				t.Run(strings.ReplaceAll(permission, "/", "."), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t, fakeazure.Options{})
						run := c.setUp(t, w)
						before := w.subscription()
						w.Fault(func(call fakeazure.Call) fakeazure.Fault {
							if call.Service == "login" || call.Permission != permission {
								return fakeazure.Fault{}
							}
							return fakeazure.Fail(http.StatusForbidden, "AuthorizationFailed", "The client does not have authorization to perform action '"+permission+"'.")
						})
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						err := run(ctx)
						switch after := w.subscription(); {
						case err == nil && after != done:
							t.Errorf("it ends well and has done\n%s\ninstead of\n%s", after, done)
						case err != nil && !write && after != before:
							t.Errorf("it ends with %v and has changed\n%s\nto\n%s", err, before, after)
						case err != nil && !strings.Contains(err.Error(), permission):
							t.Errorf("the error does not name the permission: %v", err)
						}
						w.Fault(nil)
						must(t, run(t.Context()))
						if after := w.subscription(); after != done {
							t.Errorf("with the permission it has done\n%s\ninstead of\n%s", after, done)
						}
					})
				})
			}
		})
	}
}

func sorted(text string, more []string) string {
	lines := append(strings.Split(text, "\n"), more...)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// least returns what the README tells people to allow. The first only finds a mistake early.
func least(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	must(t, err)
	_, rest, _ := strings.Cut(string(text), "```json\n")
	block, _, _ := strings.Cut(rest, "```")
	var list []string
	must(t, json.Unmarshal([]byte(block), &list))
	return list
}

// These permissions are enough for everything, and each is needed for something.
func TestLeastPermissions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		everything := func(permissions []string) map[string]bool {
			w := newWorld(t, fakeazure.Options{Permissions: permissions})
			o := w.identities(t, usual()...)
			o.IssuerURL = "https://prod-a.blob.core.windows.net/prod-a"
			o.Tags = map[string]string{"a": "b", iam.MovedAtTag("prod-a", o.IssuerURL): "2020-01-01T00:00:00Z"} // as an earlier move leaves it
			_, err := azure.CreateIdentities(t.Context(), o)
			must(t, err)
			key, err := keystore.NewPublic(clusterKey().Public())
			must(t, err)
			_, err = azure.Migrate(t.Context(), azure.MigrateOptions{Options: w.options(), Move: install.Move{Old: o.IssuerURL,
				OldKeys: func(context.Context) ([]keystore.VerificationKey, error) { return []keystore.VerificationKey{key}, nil }}})
			must(t, err)
			less := w.identities(t, request{"storage", "op", "permissions: [Microsoft.Compute/disks/read]"})
			less.Prune, less.Tags = true, map[string]string{"a": "c"}
			_, err = azure.CreateIdentities(t.Context(), less)
			must(t, err)
			_, err = azure.Delete(t.Context(), azure.DeleteOptions{Options: w.options(), Group: true})
			must(t, err)
			used := map[string]bool{}
			for _, c := range w.Calls() {
				used[c.Permission] = true
			}
			return used
		}
		list := least(t)
		used := everything(list)
		for _, p := range list {
			if !used[p] {
				t.Errorf("%s is not needed", p)
			}
		}
		everything(list[1:])
	})
}
