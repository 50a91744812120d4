package cluster

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

const wantedIssuer = "https://oidc.example.com/prod-a"

// kubeadmPod is what lists one static pod of a kube-apiserver with these issuers.
func kubeadmPod(issuers ...string) string {
	command := []string{"kube-apiserver", "--advertise-address=192.0.2.1"}
	for _, i := range issuers {
		command = append(command, "--service-account-issuer="+i)
	}
	list, _ := json.Marshal(command)
	return `{"items":[{"spec":{"containers":[{"command":` + string(list) + `}]}}]}`
}

// setUp is a cluster in which something is wrong.
type setUp struct {
	name     string
	servers  int
	breaks   func(*plane)
	code     string
	severity finding.Severity
	says     string // of the evidence
	repair   string // part of it
}

func setUps(t *testing.T) []setUp {
	const other, later = "https://kubernetes.default.svc", "https://zeta.example.com"
	return []setUp{
		{"another issuer", 1, func(s *plane) {
			s.signs[0].issuer, s.signs[0].audiences = other, []string{other}
		}, "cluster-issuer-other", finding.Fail, `signs as "https://kubernetes.default.svc", not as "https://oidc.example.com/prod-a"`,
			"--service-account-issuer=" + wantedIssuer + " --service-account-issuer=" + other},
		{"a slash at the end", 1, func(s *plane) {
			s.signs[0].issuer, s.signs[0].audiences = wantedIssuer+"/", []string{wantedIssuer + "/"}
		},
			"cluster-issuer-other", finding.Fail, "they differ by a slash at the end", "--service-account-issuer=" + wantedIssuer + " "},
		{"another case", 1, func(s *plane) {
			s.signs[0].issuer, s.signs[0].audiences = "https://oidc.example.com/Prod-a", []string{"https://oidc.example.com/Prod-a"}
		}, "cluster-issuer-other", finding.Fail, "they differ in letter case", "--service-account-issuer=" + wantedIssuer + " "},
		{"accepted, another first", 1, func(s *plane) { s.signs[0].issuer, s.signs[0].audiences = later, []string{later, wantedIssuer} },
			"cluster-issuer-other", finding.Fail, "signs as " + later + ", and accepts " + wantedIssuer, "--service-account-issuer=" + wantedIssuer + " --service-account-issuer=" + later + ", in this order"},
		{"kubeadm sorted the issuers", 1, func(s *plane) {
			s.signs[0].issuer, s.signs[0].audiences = other, []string{other, wantedIssuer}
		}, "cluster-issuer-other", finding.Fail, "accepts", "kubeadm 1.34.0 to 1.34.2 sorts"},
		{"kubeadm sorted the issuers, seen in the pod", 1, func(s *plane) {
			s.signs[0].issuer, s.signs[0].audiences, s.pods = other, []string{"own"}, kubeadmPod(other, wantedIssuer)
		}, "cluster-issuer-other", finding.Fail, "--service-account-issuer of the pod kube-apiserver", "kubeadm 1.34.0 to 1.34.2 sorts"},
		{"an audience is not an issuer where the pod is seen", 1, func(s *plane) {
			s.signs[0].issuer, s.signs[0].audiences, s.pods = other, []string{wantedIssuer}, kubeadmPod(other)
		}, "cluster-issuer-other", finding.Fail, "not as", "--service-account-issuer=" + wantedIssuer + " --service-account-issuer=" + other},
		{"one server was not restarted", 3, func(s *plane) { s.signs[1].issuer, s.signs[1].audiences = other, []string{other, wantedIssuer} },
			"cluster-issuer-other", finding.Fail, "accepts", "restart every kube-apiserver"},
		{"an unpublished key", 1, func(s *plane) {
			s.want.Published = s.want.Published[1:]
			s.want.Published = append(s.want.Published, s.stranger(t))
		},
			"cluster-key-unpublished", finding.Fail, "which is not at the issuer's public URL", "keypost key add " + wantedIssuer + " --kubeconfig "},
		{"the issuer's keys are not readable", 1, func(s *plane) { s.want.Published = nil },
			"cluster-servers-unasked", finding.Warn, "was not compared", "repair what fails besides"},
		{"no published key at all", 1, func(s *plane) { s.want.Published = []keystore.VerificationKey{} },
			"cluster-key-unpublished", finding.Fail, "which is not at the issuer's public URL", "keypost key add " + wantedIssuer + " --kubeconfig "},
		{"one server signs with an unpublished key", 2, func(s *plane) { s.signs[1].key, _ = newSigningKey(t) },
			"cluster-key-unpublished", finding.Fail, "which is not at the issuer's public URL", "keypost key add " + wantedIssuer + " --kubeconfig "},
		{"another key under the published kid", 1, func(s *plane) {
			s.signs[0].key, _ = newSigningKey(t)
			s.signs[0].kid = string(s.known[0].ID())
		}, "cluster-key-unpublished", finding.Fail, "another key than the one that is published as", "keypost key revoke"},
		{"the cluster signs with a key that is retired", 1, func(s *plane) { s.retired(t, time.Hour) },
			"cluster-key-gone", finding.Warn, "which may be from 2026-01-02T05:10:05Z on", "with --service-account-signing-key-file"},
		{"one of two servers signs with a key that is retired, and nobody knows until when", 2, func(s *plane) {
			s.retired(t, 0)
			key, public := newSigningKey(t)
			s.signs[0].key, s.want.Published = key, append(s.want.Published, public)
		}, "cluster-key-gone", finding.Warn, "as soon as it is removed", "restart the kube-apiserver at 127.0.0.1:"},
		{"the cluster signs with a key that was revoked", 1, func(s *plane) {
			s.revoked(t)
			s.want.Published = []keystore.VerificationKey{s.stranger(t)}
		}, "cluster-key-gone", finding.Fail, "which was revoked", "with --service-account-signing-key-file"},
		{"a server still trusts a key that was revoked", 2, func(s *plane) {
			s.revoked(t)
			for i := range s.signs {
				key, public := newSigningKey(t)
				s.signs[i].key, s.want.Published = key, append(s.want.Published, public)
			}
		}, "cluster-key-revoked", finding.Fail, "which was revoked", "without key "},
		{"one of two servers signs with a key that was revoked", 2, func(s *plane) {
			s.revoked(t)
			key, public := newSigningKey(t)
			s.signs[0].key, s.want.Published = key, []keystore.VerificationKey{public}
		}, "cluster-key-gone", finding.Fail, "which was revoked", "restart the kube-apiserver at 127.0.0.1:"},
		{"a server does not trust the key that another one signs with", 2, func(s *plane) {
			key, public := newSigningKey(t)
			s.signs[1].key, s.lacks, s.want.Published = key, map[int]*ecdsa.PrivateKey{0: key}, append(s.want.Published, public)
		}, "cluster-key-lacking", finding.Fail, "does not trust key", "--service-account-key-file"},
		{"the kubeconfig's server trusts the key, and another one does not", 2, func(s *plane) {
			key, public := newSigningKey(t)
			s.signs[0].key, s.lacks, s.want.Published = key, map[int]*ecdsa.PrivateKey{1: key}, append(s.want.Published, public)
		}, "cluster-key-lacking", finding.Fail, "does not trust key", "--service-account-key-file"},
		{"a server does not trust the key that another one signs with, and nothing is published", 2, func(s *plane) {
			key, _ := newSigningKey(t)
			s.signs[1].key, s.lacks, s.want.Published = key, map[int]*ecdsa.PrivateKey{0: key}, []keystore.VerificationKey{}
		}, "cluster-key-lacking", finding.Fail, "does not trust key", "--service-account-key-file"},
		{"a cloud's audience beside an earlier issuer, and a token of that", 1, func(s *plane) {
			s.signs[0].audiences = []string{wantedIssuer, later, "sts.amazonaws.com"}
			s.want.Audiences = []string{later}
		}, "cluster-audience-cloud", finding.Warn, "gets", "--api-audiences=" + wantedIssuer + "," + later},
		{"a cloud's audience at one of two servers, and the other accepts more", 2, func(s *plane) {
			s.signs[0].audiences = []string{wantedIssuer, "sts.amazonaws.com"}
			s.signs[1].audiences = []string{wantedIssuer, "api", later}
		}, "cluster-audience-cloud", finding.Warn, "gets", "--api-audiences=" + wantedIssuer + ",api," + later},
		{"accepted with others, another first", 1, func(s *plane) {
			s.signs[0].issuer, s.signs[0].audiences = later, []string{later, other, wantedIssuer}
		},
			"cluster-issuer-other", finding.Fail, "accepts", "--service-account-issuer=" + wantedIssuer + " --service-account-issuer=" + later + " --service-account-issuer=" + other + ", in this order"},
		{"another issuer, and others that are accepted", 1, func(s *plane) {
			s.signs[0].issuer, s.signs[0].audiences = later, []string{later, other, "sts.amazonaws.com"}
		},
			"cluster-issuer-other", finding.Fail, "signs as", "--service-account-issuer=" + wantedIssuer + " --service-account-issuer=" + later + " --service-account-issuer=" + other + ", in this order"},
		{"two servers that sign as different issuers, seen in one's pod", 2, func(s *plane) {
			s.signs[0].issuer, s.signs[1].issuer, s.pods = other, later, kubeadmPod(other)
		}, "cluster-issuer-other", finding.Fail, "signs as", "--service-account-issuer=" + wantedIssuer + " --service-account-issuer=" + other + " --service-account-issuer=" + later + ", in this order"},
		{"a cloud's audience", 1, func(s *plane) { s.signs[0].audiences = []string{wantedIssuer, "sts.amazonaws.com"} },
			"cluster-audience-cloud", finding.Warn, "gets https://oidc.example.com/prod-a, sts.amazonaws.com", "with --api-audiences=" + wantedIssuer},
		{"only a cloud's audience", 1, func(s *plane) { s.signs[0].audiences = []string{"api://AzureADTokenExchange"} },
			"cluster-audience-cloud", finding.Warn, "gets api://AzureADTokenExchange", "without --api-audiences"},
		{"an audience that was asked about", 1, func(s *plane) {
			s.signs[0].audiences = []string{wantedIssuer, "vault"}
			s.want.Audiences = []string{"vault"}
		}, "cluster-audience-cloud", finding.Warn, "gets https://oidc.example.com/prod-a, vault", "have that ask for another one"},
		{"--api-audiences does not have an issuer that the cluster accepts, seen in the pod", 1, func(s *plane) { s.pods = kubeadmPod(wantedIssuer, other) },
			"cluster-audience-lacking", finding.Warn, "the cluster accepts tokens of " + other + ", and --api-audiences (" + wantedIssuer + ") does not include", "--api-audiences=" + wantedIssuer + "," + other},
		{"minting is forbidden", 1, func(s *plane) {
			s.replace[tokenPath] = refuses(403, `serviceaccounts "default" is forbidden: User "jane@example.com" cannot create resource "serviceaccounts/token"`)
		}, "cluster-forbidden", finding.Warn, "jane@example.com may not have a token minted for default/default",
			"kubectl create role keypost-verify-serviceaccounts-token --verb=create --resource=serviceaccounts/token --resource-name=default --namespace default && " +
				"kubectl create rolebinding keypost-verify-serviceaccounts-token --role=keypost-verify-serviceaccounts-token --namespace default --user=jane@example.com"},
		{"listing is forbidden", 1, func(s *plane) {
			s.replace[slicesPath] = refuses(403, `endpointslices.discovery.k8s.io is forbidden: User "system:serviceaccount:ns:sa" cannot list resource`)
		}, "cluster-forbidden", finding.Warn, "system:serviceaccount:ns:sa may not list the kube-apiservers",
			"kubectl create clusterrole keypost-verify-endpointslices --verb=list --resource=endpointslices.discovery.k8s.io && " +
				"kubectl create clusterrolebinding keypost-verify-endpointslices --clusterrole=keypost-verify-endpointslices --user=system:serviceaccount:ns:sa"},
		{"the JWKS is forbidden", 1, func(s *plane) {
			s.replace[jwksPath] = refuses(403, `forbidden: User "jane" cannot get path "/openid/v1/jwks"`)
		},
			"cluster-forbidden", finding.Warn, "jane may not read the keys that the cluster trusts",
			"kubectl create clusterrolebinding keypost-verify-jwks --clusterrole=system:service-account-issuer-discovery --user=jane"},
		{"the JWKS is broken", 1, func(s *plane) { s.replace[jwksPath] = refuses(500, "no") }, "cluster-servers-unasked", finding.Warn, "answers 500", "kubectl get --raw /openid/v1/jwks --kubeconfig"},
		{"the service account does not exist", 1, func(s *plane) { s.replace[tokenPath] = refuses(404, `serviceaccounts "default" not found`) },
			"cluster-account-missing", finding.Warn, `serviceaccounts "default" not found`, "or make it: kubectl create serviceaccount default --namespace default --kubeconfig"},
		{"it signs with a key that may not sign yet", 1, func(s *plane) {
			s.want.Set = next(t, s.known[0])
		}, "cluster-key-next", finding.Fail, "which may not sign before it is promoted", "until this one is promoted: keypost rotate start " + wantedIssuer},
		{"it signs with a key that was removed and is published still", 1, func(s *plane) {
			s.revoked(t)
		}, "cluster-key-gone", finding.Fail, "it never returns", "--service-account-signing-key-file"},
		{"the namespace does not exist", 1, func(s *plane) {
			s.replace[tokenPath] = refuses(404, `serviceaccounts "default" not found`)
			s.replace["/api/v1/namespaces/default"] = refuses(404, `namespaces "default" not found`)
		}, "cluster-account-missing", finding.Warn, `serviceaccounts "default" not found`, "kubectl create namespace default --kubeconfig"},
		{"minting fails", 1, func(s *plane) { s.replace[tokenPath] = refuses(500, "no key") }, "cluster-account-missing", finding.Fail, "answers 500", "kubectl create token default --namespace default"},
		{"nobody knows how many servers there are", 1, func(s *plane) {
			s.replace[slicesPath] = func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, map[string]any{"items": []any{}}) }
		}, "cluster-servers-unasked", finding.Warn, "only ", "run it again where"},
		{"a server cannot be reached from here", 1, func(s *plane) {
			s.replace[slicesPath] = func(w http.ResponseWriter, _ *http.Request) {
				writeJSON(w, json.RawMessage(`{"items":[{"endpoints":[{"addresses":["127.0.0.1"]}],"ports":[{"port":1}]}]}`))
			}
		}, "cluster-servers-unasked", finding.Warn, "the kube-apiserver at 127.0.0.1:1 was not asked", "run it again where"},
		{"the credentials are refused", 1, func(s *plane) { s.replace[slicesPath] = refuses(401, "no") }, "cluster-unreachable", finding.Fail, "does not accept the credentials", "--context"},
		{"the cluster is in trouble", 1, func(s *plane) { s.replace[slicesPath] = refuses(503, "no") }, "cluster-unreachable", finding.Fail, "answers 503", "kubectl version --kubeconfig"},
	}
}

// TestVerifySetUps: what is wrong is named first, with a repair that names what to type.
func TestVerifySetUps(t *testing.T) {
	for _, tt := range setUps(t) {
		t.Run(tt.name, func(t *testing.T) {
			s := newPlane(t, slices.Repeat([]string{wantedIssuer}, tt.servers), map[string]http.HandlerFunc{})
			tt.breaks(s)
			got, err := Verify(t.Context(), s.access, s.want)
			check(t, err)
			if len(got) == 0 {
				t.Fatal("nothing was found")
			}
			first := got[0]
			if first.Code != tt.code || first.Severity != tt.severity || !strings.Contains(first.Evidence, tt.says) || !strings.Contains(first.Repair, tt.repair) {
				t.Errorf("first: %s %s: %s\n  repair: %s", first.Severity, first.Code, first.Evidence, first.Repair)
			}
			for _, f := range got {
				if strings.Contains(fmt.Sprint(f), "eyJ") {
					t.Errorf("%s holds a token", f.Code)
				}
			}
		})
	}
}

// next returns a key set that has the key as next.
func next(t *testing.T, k keystore.VerificationKey) keystore.KeySet {
	t.Helper()
	set, err := storetest.KeySet(t, "prod-a").Add(storetest.Change(time.Minute), k)
	check(t, err)
	return set
}

// revoked notes that the key that every server signs with was revoked.
func (s *plane) revoked(t *testing.T) {
	t.Helper()
	set, err := storetest.KeySet(t, "prod-a", s.known[0], storetest.Key(t)).Revoke(storetest.Change(time.Minute), s.known[0].ID(), keystore.RevokeOptions{})
	check(t, err)
	s.want.Set = set
}

// retired notes that the key that every server signs with is retired, and how long tokens live unless that is 0.
func (s *plane) retired(t *testing.T, lifetime time.Duration) {
	t.Helper()
	set := storetest.KeySet(t, "prod-a", s.known[0], storetest.Key(t))
	var err error
	if lifetime > 0 {
		set, err = set.SetPolicy(storetest.Change(time.Minute), keystore.Policy{TokenLifetime: keystore.DurationPtr(lifetime)})
		check(t, err)
	}
	s.want.Set, err = set.Retire(storetest.Change(time.Hour), s.known[0].ID(), keystore.Evidence{Statement: "test"})
	check(t, err)
}

func (s *plane) stranger(t *testing.T) keystore.VerificationKey {
	_, public := newSigningKey(t)
	return public
}

func TestVerifyFindsNothingWrong(t *testing.T) {
	const three = "three servers"
	for name, change := range map[string]func(*plane){
		"one server": func(*plane) {}, three: func(*plane) {},
		"an older key of its own": func(s *plane) { s.known = append(s.known, s.stranger(t)) },
		"the next key": func(s *plane) {
			k := s.stranger(t)
			s.want.Published, s.want.Set = append(s.want.Published, k), next(t, k)
		},
		"the issuer is an audience that was asked about": func(s *plane) { s.want.Audiences = []string{wantedIssuer} },
		"no audience was asked about":                    func(s *plane) { s.want.Audiences = nil },
		"the issuer is not an audience, seen in the pod": func(s *plane) {
			s.pods = kubeadmPod(wantedIssuer, "https://kubernetes.default.svc")
			s.signs[0].audiences = []string{"https://kubernetes.default.svc"}
		},
		"a token of an earlier issuer that the cluster still accepts": func(s *plane) {
			s.signs[0].audiences = []string{wantedIssuer, "https://bucket.example.com"}
			s.want.Audiences = []string{"https://bucket.example.com"}
		},
		"a pod's own token, whose audience is not a URL": func(s *plane) {
			s.signs[0].audiences, s.want.Audiences = []string{"api"}, []string{"api"}
		},
		"a token from before, which is still accepted": func(s *plane) {
			s.signs[0].audiences = []string{wantedIssuer, "https://kubernetes.default.svc"}
			s.want.Audiences = []string{"https://kubernetes.default.svc"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			issuers := []string{wantedIssuer}
			if name == three {
				issuers = slices.Repeat(issuers, 3)
			}
			s := newPlane(t, issuers, nil)
			change(s)
			got, err := Verify(t.Context(), s.access, s.want)
			check(t, err)
			for _, f := range got {
				if f.Severity != finding.OK {
					t.Errorf("%s %s: %s", f.Severity, f.Code, f.Evidence)
				}
			}
			if len(got) < 2 {
				t.Errorf("only %v", got)
			}
		})
	}
}

func TestVerifyEnds(t *testing.T) {
	s := newPlane(t, []string{wantedIssuer}, nil)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := Verify(stopped, s.access, s.want); !errors.Is(err, context.Canceled) || got != nil {
		t.Errorf("stopped: %v, %v", got, err)
	}
	if _, err := Verify(t.Context(), Access{Kubeconfig: filepath.Join(t.TempDir(), "absent")}, s.want); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no kubeconfig: %v", err)
	}
	if _, err := Verify(t.Context(), Access{Kubeconfig: s.access.Kubeconfig, ServiceAccount: "x"}, s.want); err == nil || !strings.Contains(err.Error(), "NAMESPACE/NAME") {
		t.Errorf("account mistyped: %v", err)
	}
}
