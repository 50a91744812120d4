package azure_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/test/fakeazure"
)

// bent is Azure with answers that something between here and there has changed.
type bent struct {
	to   arm.Transport
	bend func(*http.Request, *http.Response)
}

func (b bent) Do(r *http.Request) (*http.Response, error) {
	resp, err := b.to.Do(r)
	if err == nil {
		b.bend(r, resp)
	}
	return resp, err
}

// rewrite changes the body of an answer.
func rewrite(t *testing.T, resp *http.Response, f func(string) string) {
	t.Helper()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	text := []byte(f(string(data)))
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	resp.Header.Del("Content-Length")
}

// What is not a list is not taken for an empty one, after which others' things would be deleted or written over.
func TestAnAnswerWithoutAListIsNotAnEmptyList(t *testing.T) {
	t.Parallel()
	const group = "/subscriptions/" + subscription + "/resourceGroups/prod-a-oidc"
	for _, list := range []string{"/resources", "/userAssignedIdentities", "/federatedIdentityCredentials", "/roleAssignments", "/roleDefinitions"} {
		for _, answer := range []string{"{}", "null", "", `{"value":null}`, `{"value":[null]}`} {
			t.Run(list[1:]+" "+answer, func(t *testing.T) {
				w := newWorld(t, fakeazure.Options{})
				_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
				must(t, err)
				w.arm(t, "PUT", group+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/other", "2024-11-30", `{"location":"centralus","tags":{"team":"other"}}`)
				transport := bent{w.Client(), func(r *http.Request, resp *http.Response) {
					if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, list) {
						rewrite(t, resp, func(string) string { return answer })
					}
				}}
				again, gone := w.identities(t, usual()...), azure.DeleteOptions{Options: w.options(), Group: true}
				again.Transport, gone.Transport = transport, transport
				w.writes()
				_, created := azure.CreateIdentities(t.Context(), again)
				_, deleted := azure.Delete(t.Context(), gone)
				used := map[string][]error{"/resources": {deleted}, "/federatedIdentityCredentials": {created}}[list]
				if used == nil {
					used = []error{created, deleted}
				}
				for _, err := range used {
					if err == nil || !strings.Contains(err.Error(), "is not a list of Azure's") {
						t.Errorf("it is taken for a list: %v", err)
					}
				}
				for _, c := range w.writes() {
					if strings.HasPrefix(c, "Put") || strings.HasPrefix(c, "DeleteGroup") {
						t.Errorf("it wrote %s", c)
					}
				}
			})
		}
	}
}

// Wherever an answer leads, the caller's token does not go along, and nobody asks twice.
func TestTheTokenStaysWithAzure(t *testing.T) {
	t.Parallel()
	for name, link := range map[string]string{"another host": "https://evil.example.net/x?y=1", "no TLS": "http://management.azure.com/x?y=1"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fakeazure.Options{})
			_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
			must(t, err)
			answers := 0
			lists := bent{w.Client(), func(r *http.Request, resp *http.Response) {
				if strings.Contains(r.URL.Host, "evil") || r.URL.Scheme == "http" {
					t.Errorf("%s was asked, with %.20q", r.URL, r.Header.Get("Authorization"))
				}
				if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/userAssignedIdentities") {
					answers++
					rewrite(t, resp, func(string) string { return `{"value":[],"nextLink":"` + link + `"}` })
				}
			}}
			o := w.identities(t, usual()...)
			o.Transport = lists
			_, err = azure.CreateIdentities(t.Context(), o)
			if err == nil || answers != 1 || name != "no TLS" && !strings.Contains(err.Error(), "does not get the caller's token") {
				t.Errorf("after %d answers: %v", answers, err)
			}
			gone := azure.DeleteOptions{Options: w.options(), Group: true}
			gone.Transport = bent{w.Client(), func(r *http.Request, resp *http.Response) {
				if strings.Contains(r.URL.Host, "evil") || r.URL.Scheme == "http" {
					t.Errorf("%s was asked, with %.20q", r.URL, r.Header.Get("Authorization"))
				}
				if r.Method == http.MethodDelete && resp.Header.Get("Location") != "" {
					resp.Header.Set("Location", link)
				}
			}}
			if _, err = azure.Delete(t.Context(), gone); err == nil {
				t.Error("the deletion went on")
			}
		})
	}
}

// IDs of another form than IDs have get into no Secret and no assignment: nothing is written but what the first answer came to.
func TestAnIDThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	const evil = `x\n  azure_federated_token_file: /evil\nkind: ClusterRoleBinding\n# `
	for _, field := range []string{"clientId", "principalId", "tenantId"} {
		for name, id := range map[string]string{"lines": evil, "empty": ""} {
			for _, there := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s %v", field, name, there), func(t *testing.T) {
					w := newWorld(t, fakeazure.Options{})
					o := w.identities(t, usual()[2])
					if there {
						_, err := azure.CreateIdentities(t.Context(), o)
						must(t, err)
						must(t, os.RemoveAll(filepath.Join(w.Out(), "manifests")))
					}
					form := regexp.MustCompile(`"` + field + `":"[^"]*"`)
					o.Transport = bent{w.Client(), func(r *http.Request, resp *http.Response) {
						if strings.Contains(r.URL.Path, "/userAssignedIdentities") && !strings.Contains(r.URL.Path, "federated") {
							rewrite(t, resp, func(s string) string { return form.ReplaceAllLiteralString(s, `"`+field+`":"`+id+`"`) })
						}
					}}
					w.writes()
					_, err := azure.CreateIdentities(t.Context(), o)
					if err == nil || !strings.Contains(err.Error(), "which is none") {
						t.Errorf("it is taken: %v", err)
					}
					if secrets, _ := filepath.Glob(filepath.Join(w.Out(), "manifests", "*")); len(secrets) > 0 {
						t.Errorf("it wrote %q", secrets)
					}
					for _, c := range w.writes() {
						if there || strings.HasPrefix(c, "PutAssignment") || strings.HasPrefix(c, "PutCredential") {
							t.Errorf("it wrote %s", c)
						}
					}
				})
			}
		}
	}
}

// A workload shows its tokens to the tenant that its Secret names: it is the subscription's, whatever an answer about an identity says.
func TestAnIdentityOfAnotherTenantIsRefused(t *testing.T) {
	t.Parallel()
	const evil = "66666666-6666-6666-6666-666666666666"
	for _, there := range []bool{false, true} {
		for _, given := range []string{tenant, ""} {
			w := newWorld(t, fakeazure.Options{})
			o := w.identities(t, usual()[2])
			if there {
				_, err := azure.CreateIdentities(t.Context(), o)
				must(t, err)
				must(t, os.RemoveAll(filepath.Join(w.Out(), "manifests")))
			}
			o.Tenant = given
			o.Transport = bent{w.Client(), func(r *http.Request, resp *http.Response) {
				if strings.Contains(r.URL.Path, "/userAssignedIdentities") && !strings.Contains(r.URL.Path, "federated") {
					rewrite(t, resp, func(s string) string { return strings.ReplaceAll(s, tenant, evil) })
				}
			}}
			_, err := azure.CreateIdentities(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), "is of tenant "+evil+" in Azure's answer, and its subscription is of "+tenant) {
				t.Errorf("there %v, given %q: %v", there, given, err)
			}
			if secrets, _ := filepath.Glob(filepath.Join(w.Out(), "manifests", "*")); len(secrets) > 0 {
				t.Errorf("there %v, given %q: it wrote %q", there, given, secrets)
			}
		}
	}
}

// Of a list of assignments nothing is deleted that is not an assignment where the list says it is.
func TestAnAssignmentWithAnotherIDIsRefused(t *testing.T) {
	t.Parallel()
	const guid = "12345678-1234-1234-1234-123456789012"
	assigned := "/subscriptions/" + subscription + "/resourceGroups/prod-a/providers/Microsoft.Authorization/roleAssignments/"
	for name, id := range map[string]string{
		"another subscription": strings.Replace(assigned, subscription, "22222222-2222-3333-4444-555555555555", 1) + "NAME",
		"something else":       "/subscriptions/" + subscription + "/resourceGroups/prod/providers/Microsoft.Compute/virtualMachines/db",
		"something else with an end that fits": "/subscriptions/22222222-2222-3333-4444-555555555555/resourceGroups/prod/providers/Microsoft.Compute/virtualMachines/db?x=" +
			assigned + "NAME",
		"another assignment": assigned + guid,
		"above it":           assigned + "../../NAME",
		"above its scope":    strings.Replace(assigned, "resourceGroups/prod-a", "resourceGroups/prod-a/../..", 1) + "NAME",
		"none":               "",
	} {
		for _, prune := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", name, prune), func(t *testing.T) {
				w := newWorld(t, fakeazure.Options{})
				o := w.identities(t, usual()[1:]...)
				_, err := azure.CreateIdentities(t.Context(), o)
				must(t, err)
				form, scopeForm := regexp.MustCompile(`"id":"[^"]*/roleAssignments/([^"]*)"`), regexp.MustCompile(`"scope":"[^"]*"`)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				transport := bent{w.Client(), func(r *http.Request, resp *http.Response) {
					if r.Method == http.MethodDelete {
						stop() // it would look for minutes whether that shows
					}
					if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/roleAssignments") {
						rewrite(t, resp, func(s string) string {
							if scope, _, there := strings.Cut(id, "/../../providers/"); there { // then the two agree
								s = scopeForm.ReplaceAllString(s, `"scope":"`+scope+`/../.."`)
							}
							return form.ReplaceAllString(s, `"id":"`+strings.Replace(id, "NAME", "$1", 1)+`"`)
						})
					}
				}}
				o = w.identities(t, request{"storage", "op", "permissions: [Microsoft.Compute/disks/read]"})
				o.Transport, o.Prune = transport, true
				gone := azure.DeleteOptions{Options: w.options()}
				gone.Transport = transport
				w.writes()
				if prune {
					_, err = azure.CreateIdentities(ctx, o)
				} else {
					_, err = azure.Delete(ctx, gone)
				}
				if wrote := w.writes(); err == nil || !strings.Contains(err.Error(), "which is none of an assignment there") || len(wrote) > 0 {
					t.Errorf("%v, and it wrote %q", err, wrote)
				}
			})
		}
	}
}

// An identity whose answer says nothing is not printed with empty IDs.
func TestAnEmptyAnswerIsNoIdentity(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"{}", "null", ""} {
		w := newWorld(t, fakeazure.Options{})
		o := azure.WorkloadOptions{Options: w.elsewhere(), Roles: []string{"Contributor"}}
		o.Name, o.OIDCGroup, o.InstallGroup = "loki", "obs", ""
		o.Transport = bent{w.Client(), func(r *http.Request, resp *http.Response) {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "userAssignedIdentities/loki") {
				rewrite(t, resp, func(string) string { return answer })
			}
		}}
		if _, err := azure.CreateIdentity(t.Context(), o); err == nil || !strings.Contains(err.Error(), `managed identity loki has the principal ID ""`) {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

// A subscription whose answer names no tenant may be anybody's: --tenant-id is kept to.
func TestAnAnswerWithoutATenantIsRefused(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"{}", "null", "", `{"tenantId":"x"}`} {
		w := newWorld(t, fakeazure.Options{})
		o := w.identities(t, usual()[2])
		o.Transport = bent{w.Client(), func(r *http.Request, resp *http.Response) {
			if strings.HasSuffix(r.URL.Path, "/subscriptions/"+subscription) {
				rewrite(t, resp, func(string) string { return answer })
			}
		}}
		_, err := azure.CreateIdentities(t.Context(), o)
		if wrote := w.writes(); err == nil || !strings.Contains(err.Error(), "no tenant's ID") || len(wrote) > 0 {
			t.Errorf("%q: %v, and it wrote %q", answer, err, wrote)
		}
	}
}

// A custom role is assigned, rewritten or deleted only if its ID is a role's, and of the role that the answer says.
func TestARoleWithAnotherIDIsRefused(t *testing.T) {
	t.Parallel()
	const theirs, at = "12121212-1234-1234-1234-123456789012", "/subscriptions/" + subscription + "/providers/Microsoft.Authorization/roleDefinitions/"
	form := regexp.MustCompile(`"id":"[^"]*/roleDefinitions/([^"]*)"`)
	for name, id := range map[string]string{
		"another role":          at + theirs,
		"no role":               "/subscriptions/" + subscription + "/x/NAME",
		"above it":              "..",
		"above its scope":       "/subscriptions/" + subscription + "/.." + strings.TrimPrefix(at, "/subscriptions/"+subscription) + "NAME",
		"above a group's scope": "/providers/Microsoft.Management/managementGroups/.." + strings.TrimPrefix(at, "/subscriptions/"+subscription) + "NAME",
		"with more":             at + "NAME/..",
		"none":                  "",
	} {
		for _, run := range []string{"create", "delete", "prune", "a role that exists"} {
			t.Run(name+", "+run, func(t *testing.T) {
				w := newWorld(t, fakeazure.Options{})
				_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()[1:]...))
				must(t, err)
				w.arm(t, "PUT", at+theirs, "2022-04-01", `{"properties":{"roleName":"theirs","description":"of others","type":"CustomRole",
					"assignableScopes":["/subscriptions/`+subscription+`"],"permissions":[{"actions":["Microsoft.Network/dnsZones/A/write"]}]}}`)
				w.writes()
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				transport := bent{w.Client(), func(r *http.Request, resp *http.Response) {
					if r.Method == http.MethodPut || r.Method == http.MethodDelete {
						stop() // it would look for minutes whether that shows
					}
					if reads("/roledefinitions")(r) {
						rewrite(t, resp, func(s string) string {
							return form.ReplaceAllString(s, `"id":"`+strings.ReplaceAll(id, "NAME", "$1")+`"`)
						})
					}
				}}
				switch run {
				case "delete":
					o := azure.DeleteOptions{Options: w.options()}
					o.Transport = transport
					_, err = azure.Delete(ctx, o)
				default:
					o := w.identities(t, map[string]request{
						"create":             {"storage", "op", "permissions: [Microsoft.Compute/disks/write]"},
						"prune":              {"new", "op", "permissions: [Microsoft.Compute/disks/read]"},
						"a role that exists": {"registry", "registry", "roleBindings: [{role: Reader}]"},
					}[run])
					o.Transport, o.Prune = transport, run == "prune"
					_, err = azure.CreateIdentities(ctx, o)
				}
				if wrote := w.writes(); err == nil || !strings.Contains(err.Error(), "in Azure's answer, which is none of a role with its name") || len(wrote) > 0 {
					t.Errorf("%v, and it wrote %q", err, wrote)
				}
			})
		}
	}
}

// An ID in a command line that is printed is a word of it, whatever Azure allows in names and whoever gave them.
func TestPrintedIDsAreQuoted(t *testing.T) {
	t.Parallel()
	const named = "12345678-1234-1234-1234-123456789012"
	for _, tt := range []struct{ scope, principal string }{
		{"/subscriptions/" + subscription + "/resourceGroups/rg(1)/providers/Microsoft.Sql/servers/s/databases/x;touch PWNED;$(id)", "12345678-1234-1234-1234-123456789abc"},
		{"/providers/Microsoft.Management/managementGroups/a(b)", ""}, // of one of ours
	} {
		w := newWorld(t, fakeazure.Options{})
		_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()[1]))
		must(t, err)
		s := w.State()
		role, principal := s.Definitions[0].Name, tt.principal
		if principal == "" {
			principal = s.Identities[0].PrincipalID
		}
		id := tt.scope + "/providers/Microsoft.Authorization/roleAssignments/" + named
		o := azure.DeleteOptions{Options: w.options()}
		o.Transport = bent{w.Client(), func(r *http.Request, resp *http.Response) {
			if reads("/roleassignments")(r) {
				rewrite(t, resp, func(s string) string {
					return strings.Replace(s, `"value":[`, fmt.Sprintf(`"value":[{"id":%q,"name":%q,"properties":{"scope":%q,"principalId":%q,
						"roleDefinitionId":"/subscriptions/%s/providers/Microsoft.Authorization/roleDefinitions/%s"}},`, id, named, tt.scope, principal, subscription, role), 1)
				})
			}
		}}
		_, err = azure.Delete(t.Context(), o)
		if said := fmt.Sprint(w.Reported(), err); !strings.Contains(said, "az role assignment delete --ids '"+id+"'") {
			t.Errorf("%v:\n%s", err, said)
		}
	}
}

// A custom role whose name Unicode folds into ours is another one to Azure.
func TestARoleOfOtherLettersIsNotOurs(t *testing.T) {
	t.Parallel()
	for name, ours := range map[string]bool{"PROD-A-ns-storage-CREDS": true, "prod-a-ns-ſtorage-creds": false} {
		w := newWorld(t, fakeazure.Options{})
		w.arm(t, "PUT", "/subscriptions/"+subscription+"/providers/Microsoft.Authorization/roleDefinitions/12121212-1234-1234-1234-123456789012", "2022-04-01",
			`{"properties":{"roleName":"`+name+`","description":"Custom role for OpenShift. Owned by: prod-a","type":"CustomRole",
			"assignableScopes":["/subscriptions/`+subscription+`"],"permissions":[{"actions":["Microsoft.Network/dnsZones/A/write"]}]}}`)
		_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()[1]))
		must(t, err)
		if n := len(w.State().Definitions); (n == 1) != ours {
			t.Errorf("%s: there are %d roles", name, n)
		}
	}
}

// The Secret of the webhook for pod identities has the tenant that all of them show their tokens to: no request may have it.
func TestTheWebhooksSecretIsReserved(t *testing.T) {
	t.Parallel()
	const asks = `apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: evil, namespace: openshift-cloud-credential-operator}
spec:
  secretRef: {name: azure-credentials, namespace: openshift-cloud-credential-operator}
  serviceAccountNames: [evil]
  providerSpec: {apiVersion: cloudcredential.openshift.io/v1, kind: AzureProviderSpec`
	for _, spec := range []string{
		", permissions: [Microsoft.Compute/disks/read]}",
		", azureClientID: 12345678-1234-1234-1234-123456789012, azureTenantID: 66666666-1234-1234-1234-123456789012, azureSubscriptionID: 12345678-1234-1234-1234-123456789012, azureRegion: centralus}",
	} {
		w := newWorld(t, fakeazure.Options{})
		o := w.create(t, usual()...)
		must(t, os.WriteFile(filepath.Join(o.Identities.Dir, "evil.yaml"), []byte(asks+spec), 0o600))
		_, all := azure.Create(t.Context(), o)
		_, alone := azure.CreateIdentities(t.Context(), azure.IdentitiesOptions{Options: w.elsewhere(), Identities: *o.Identities})
		for _, err := range []error{all, alone} {
			if err == nil || !strings.Contains(err.Error(), "asks for the Secret openshift-cloud-credential-operator/azure-credentials, which is that of OpenShift's webhook") {
				t.Errorf("error %v", err)
			}
		}
		if calls := len(w.Calls()); calls > 0 {
			t.Errorf("%d calls", calls)
		}
	}
}
