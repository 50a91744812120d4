//go:build e2e && e2e_full

package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// nightly are terms with tokens as short as kube-apiserver makes them. A key may sign 195 s after it was seen.
func nightly() terms {
	return terms{time.Minute, 10 * time.Second, time.Minute, 10 * time.Minute, 6 * time.Second, time.Minute}
}

// TestRotationOfKubernetesRefusesNoToken is TestRotationRefusesNoToken with tokens of real kube-apiservers, which are restarted in the
// two rounds that `rotate step` prints, and which it asks before it retires a key: two clusters of two of them are rotated by
// the gates, three clusters of one in the wrong order. It takes 25 minutes.
func TestRotationOfKubernetesRefusesNoToken(t *testing.T) {
	all := mistakes(nightly(), true)
	for i := range 2 {
		all = append(all, &rotating{name: "by the gates", how: (*rotating).byTheGates, operators: 1 + i, kill: i > 0, terms: nightly(), kubernetes: true})
	}
	p := newProof(t, len(all))
	startEtcd(t)
	for i, r := range all {
		p.publish(t, r, i)
		p.startCluster(t, r, i)
	}
	p.startKubernetes(t, all)
	var done sync.WaitGroup
	for _, r := range all {
		done.Go(func() { r.run(t) })
	}
	done.Wait()
	report(t, all)
}

// startCluster starts the kube-apiservers that sign for an issuer.
func (p *proof) startCluster(t *testing.T, r *rotating, i int) {
	t.Helper()
	hosts := []string{fmt.Sprintf("10.99.%d.11", i), fmt.Sprintf("10.99.%d.12", i)}
	if r.wrong {
		hosts = hosts[:1]
	}
	c := newPlane(t, p.ca, r.id, hosts...)
	client := &http.Client{Timeout: patienceOfParties, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.ca.Pool(), ServerName: hosts[0]}}}
	r.signers = nil
	for i := range hosts {
		s := &kubeServer{t: t, plane: c, i: i, issuer: r.url, client: client, knows: []signingKey{r.old}}
		s.key = r.old
		s.restart()
		r.signers = append(r.signers, s)
	}
	c.createAccount(t)
	c.listed(t, hosts...)
	r.asking = []string{"--kubeconfig", c.kubeconfig, "--service-account", "default/sa1"}
}

// kubeServer is a real kube-apiserver.
type kubeServer struct {
	t      *testing.T
	plane  *plane
	i      int
	issuer string
	client *http.Client
	key    signingKey
	knows  []signingKey
}

func (s *kubeServer) learn(k signingKey) {
	s.knows = append(s.knows, k)
	s.restart()
	s.plane.listed(s.t, s.plane.hosts...)
}

func (s *kubeServer) sign(k signingKey) {
	s.key = k
	s.restart()
	s.plane.listed(s.t, s.plane.hosts...)
}

// restart starts it anew with its flags.
func (s *kubeServer) restart() {
	s.plane.key, s.plane.extra = s.key.key, nil
	for _, k := range s.knows {
		if k.kid != s.key.kid {
			s.plane.extra = append(s.plane.extra, "--service-account-key-file="+k.public)
		}
	}
	s.plane.serve(s.t, s.i, s.issuer)
}

func (s *kubeServer) mint(_ string, lifetime time.Duration) (proofToken, error) {
	url := "https://" + s.plane.at(s.i) + "/api/v1/namespaces/default/serviceaccounts/sa1/token"
	body := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":[%q],"expirationSeconds":%d}}`, audience, int(lifetime.Seconds()))
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return proofToken{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+adminToken)
	res, err := s.client.Do(req)
	if err != nil {
		return proofToken{}, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusCreated {
		err = fmt.Errorf("%s: %s: %s", url, res.Status, answer)
	}
	if err != nil {
		return proofToken{}, err
	}
	var made struct{ Status struct{ Token string } }
	if err := json.Unmarshal(answer, &made); err != nil {
		return proofToken{}, err
	}
	return readProofToken(made.Status.Token)
}

func readProofToken(text string) (proofToken, error) {
	var header struct{ Kid string }
	var claims struct{ Exp int64 }
	parts := strings.Split(text, ".")
	for i, into := range []any{&header, &claims} {
		data, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil {
			return proofToken{}, err
		}
		if err := json.Unmarshal(data, into); err != nil {
			return proofToken{}, err
		}
	}
	return proofToken{text, header.Kid, time.Unix(claims.Exp, 0)}, nil
}
