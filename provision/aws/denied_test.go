package aws_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakeaws"
)

// command is one of keypost aws, and what is there before.
type command struct {
	name  string
	setUp func(t *testing.T, w *world) func(context.Context) error
}

func commands() []command {
	roles := func(t *testing.T, w *world, names ...string) aws.RolesOptions {
		o := w.create(t, names...)
		return aws.RolesOptions{Options: o.Options, Roles: *o.Roles, ProviderARN: "arn:aws:iam::123456789012:oidc-provider/" + strings.TrimPrefix(issuerURL, "https://")}
	}
	installed := func(t *testing.T, w *world, names ...string) {
		w.makeProvider(t, issuerURL, "prod-a")
		_, err := aws.CreateRoles(t.Context(), roles(t, w, names...))
		must(t, err)
	}
	return []command{
		{"create-all", func(t *testing.T, w *world) func(context.Context) error {
			w.WriteKeys(t)
			o := w.create(t, "a")
			return func(ctx context.Context) error {
				_, err := aws.Create(ctx, o)
				return err
			}
		}},
		{"create-iam-roles", func(t *testing.T, w *world) func(context.Context) error {
			installed(t, w, "a", "old")
			o := roles(t, w, "a", "b")
			o.Roles.Dir = w.onlyRequests(t, "a", "b")
			o.Roles.Prune, o.Tags = true, map[string]string{"team": "a"}
			return func(ctx context.Context) error {
				_, err := aws.CreateRoles(ctx, o)
				return err
			}
		}},
		{"create-role", func(t *testing.T, w *world) func(context.Context) error {
			installed(t, w, "a")
			o := aws.RoleOptions{Options: w.create(t, "a").Options, ServiceAccounts: []install.ServiceAccount{{Namespace: "ns", Name: "app"}},
				PolicyARNs: []string{"arn:aws:iam::aws:policy/ReadOnlyAccess"}, Permissions: []byte(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}]}`)}
			o.Name = "app"
			return func(ctx context.Context) error {
				_, err := aws.CreateRole(ctx, o)
				return err
			}
		}},
		{"delete", func(t *testing.T, w *world) func(context.Context) error {
			installed(t, w, "a", "b")
			o := aws.DeleteOptions{Options: w.create(t, "a").Options}
			o.IssuerURL = ""
			return func(ctx context.Context) error {
				_, err := aws.Delete(ctx, o)
				return err
			}
		}},
		{"delete an issuer", func(t *testing.T, w *world) func(context.Context) error {
			_, move := w.migration(t)
			_, err := aws.Migrate(t.Context(), move)
			must(t, err)
			o := aws.DeleteOptions{Options: move.Options}
			o.IssuerURL = oldURL
			return func(ctx context.Context) error {
				_, err := aws.Delete(ctx, o)
				return err
			}
		}},
		{"migrate", func(t *testing.T, w *world) func(context.Context) error {
			_, o := w.migration(t)
			return func(ctx context.Context) error {
				_, err := aws.Migrate(ctx, o)
				return err
			}
		}},
		{"migrate --finish", func(t *testing.T, w *world) func(context.Context) error {
			p, o := w.migration(t)
			_, err := aws.Migrate(t.Context(), o)
			must(t, err)
			p.SignsAs(issuerURL)
			o.TokenLifetime = time.Hour
			if _, err := aws.FinishMigration(t.Context(), o); !closed(err, gate.GateTokens) {
				t.Fatal(err)
			}
			w.switchedLongAgo(t)
			return func(ctx context.Context) error {
				_, err := aws.FinishMigration(ctx, o)
				return err
			}
		}},
	}
}

// account is what the account holds, without what differs from one making to another.
func (w *world) account() string {
	s := w.State()
	for i := range s.Providers {
		s.Providers[i].Created = time.Time{}
	}
	for i := range s.Roles {
		s.Roles[i].Created, s.Roles[i].ID = time.Time{}, ""
	}
	return fmt.Sprintf("%+v", s)
}

// Whichever permission is missing, a command that ends well has done all, and one that does not have a permission to read has changed
// nothing. With the permission it is done.
func TestADeniedPermissionIsToldAndNothingIsHalfRead(t *testing.T) {
	t.Parallel()
	for _, c := range commands() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			run := c.setUp(t, w)
			w.ResetCalls()
			must(t, run(t.Context()))
			done, writes := w.account(), map[string]bool{}
			for _, call := range w.Calls() {
				if call.Service == "iam" {
					writes[call.Action] = call.Write
				}
			}
			if len(writes) < 4 {
				t.Fatalf("it calls %v", writes)
			}
			for action, write := range writes {
				t.Run(action, func(t *testing.T) {
					t.Parallel()
					w := newWorld(t)
					run := c.setUp(t, w)
					before := w.account()
					w.Fault(func(call fakeaws.Call) fakeaws.Fault {
						if call.Action != action {
							return fakeaws.Fault{}
						}
						return fakeaws.Fail(http.StatusForbidden, "AccessDenied", "User: arn:aws:iam::123456789012:user/x is not authorized to perform: iam:"+action)
					})
					err := run(t.Context())
					switch after := w.account(); {
					case err == nil && after != done:
						t.Errorf("it ends well and has done\n%s\ninstead of\n%s", after, done)
					case err != nil && !write && after != before:
						t.Errorf("it ends with %v and has changed\n%s\nto\n%s", err, before, after)
					case err != nil && !strings.Contains(err.Error(), action):
						t.Errorf("the error does not name the permission: %v", err)
					}
					w.Fault(nil)
					must(t, run(t.Context()))
					if after := w.account(); after != done {
						t.Errorf("with the permission it has done\n%s\ninstead of\n%s", after, done)
					}
				})
			}
		})
	}
}
