package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/keypost/keypost/internal/signingkey"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakecloud"
)

// installed is the installation that create-all makes, and its key set.
const installed = "bench"

// issuerSite is an issuer that a keypostd serves, and that was seen to be served for days, so that nobody waits for it.
type issuerSite struct {
	store *keystore.Store
	key   signingkey.Private
	site  install.Site
}

// publish makes a key pair, stores its key set and serves it.
func (b *bench) publish(ctx context.Context) (issuerSite, error) {
	dir := filepath.Join(b.dir, "provisioned")
	backend, err := filestore.Create(dir)
	if err != nil {
		return issuerSite{}, err
	}
	s := issuerSite{store: keystore.NewStore(backend)}
	if s.key, err = signingkey.Generate(signingkey.RSA2048); err != nil {
		return issuerSite{}, err
	}
	if err := s.rotate(ctx); err != nil {
		return issuerSite{}, err
	}
	server, err := b.startKeypostd(ctx, "provisioned-keypostd", b.keypostd(), dir)
	if err != nil {
		return issuerSite{}, err
	}
	s.site = install.Site{Network: fetch.Network{RootCAs: b.cert.roots, Connect: server.address}}
	return s, nil
}

// rotate stores a key set whose second key is the site's, promoted after it was seen everywhere.
func (s issuerSite) rotate(ctx context.Context) error {
	first, err := signingkey.Generate(signingkey.RSA2048)
	if err != nil {
		return err
	}
	url, err := keystore.ParseIssuerURL("https://"+host+"/"+installed, false)
	if err != nil {
		return err
	}
	days := func(n int) time.Time { return time.Now().AddDate(0, 0, -n) }
	spec := keystore.Spec{Name: installed, Issuers: []keystore.IssuerURL{url}, Keys: []keystore.VerificationKey{first.Public()}, Policy: policy()}
	if _, err := catalog.Add(ctx, s.store, spec, catalog.AddOptions{Change: keystore.Change{At: days(10), By: "bench"}}); err != nil {
		return err
	}
	if _, err := keystore.Update(ctx, s.store, installed, func(now keystore.KeySet) (keystore.KeySet, error) {
		return now.Add(keystore.Change{At: days(9), By: "bench"}, s.key.Public())
	}); err != nil {
		return err
	}
	_, err = keystore.Update(ctx, s.store, installed, func(now keystore.KeySet) (keystore.KeySet, error) {
		return now.Promote(keystore.Change{At: days(1), By: "bench"}, s.key.Public().ID(), keystore.Observed{Since: days(8), Fresh: days(1), Newest: days(1)})
	})
	return err
}

func policy() keystore.Policy {
	return keystore.Policy{RelyingParties: []string{"aws", "gcp", "entra"}}
}

// premises are what a run of create-all needs beside a cloud.
type premises struct {
	issuerSite
	requests, out string // directories
}

// premises makes the directories for one cloud: CredentialsRequests, and an output directory with the key pair.
func (b *bench) premises(site issuerSite, c contest, oneByOne bool) (premises, error) {
	dir, err := os.MkdirTemp(b.dir, "create-all-")
	if err != nil {
		return premises{}, err
	}
	p := premises{site, filepath.Join(dir, "requests"), filepath.Join(dir, "out")}
	for _, d := range []string{p.requests, p.out} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return p, err
		}
	}
	for i := range c.requests {
		if err := os.WriteFile(filepath.Join(p.requests, fmt.Sprintf("%02d.yaml", i)), []byte(credentialsRequest(i, c.spec)), 0o600); err != nil {
			return p, err
		}
	}
	return p, site.key.Write(signingkey.Paths{Private: filepath.Join(p.out, ccoctl.PrivateKeyName), Public: filepath.Join(p.out, ccoctl.PublicKeyName)})
}

// released is how many requests for Azure a release of OpenShift has.
const released = 8

// accounts are how many service accounts each of a release's requests for Azure names, in the order of their files.
func accounts(i int) int { return []int{1, 1, 1, 2, 1, 1, 3, 3}[i%released] }

// credentialsRequest is the i-th request, with what a cloud's provider is to give.
func credentialsRequest(i int, spec string) string {
	var names []string
	for n := range accounts(i) {
		names = append(names, fmt.Sprintf("sa-%d-%d", i, n))
	}
	return fmt.Sprintf(`apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: openshift-request-%[1]d, namespace: openshift-cloud-credential-operator}
spec:
  secretRef: {name: cloud-credentials, namespace: openshift-ns-%[1]d}
  serviceAccountNames: [%[2]s]
  providerSpec: {apiVersion: cloudcredential.openshift.io/v1, %[3]s}
`, i, strings.Join(names, ", "), spec)
}

// options are what the clouds' create-alls have in common.
func (p premises) options() install.Options {
	open := func(context.Context) (*keystore.Store, error) { return p.store, nil }
	return install.Options{
		Store: install.KeyStore{Name: "the store", Change: func() keystore.Change { return keystore.Change{At: time.Now(), By: "bench"} }, Open: open, Create: open},
		Name:  installed, Dir: p.out, IssuerURL: "https://" + host + "/" + installed, Site: p.site, Policy: policy(),
	}
}

// inTurn lets one call through at a time, to the end of its answer.
func inTurn(to http.RoundTripper) http.RoundTripper {
	var turn sync.Mutex
	return fakecloud.RoundTripper(func(r *http.Request) (*http.Response, error) {
		turn.Lock()
		res, err := to.RoundTrip(r)
		if err != nil {
			turn.Unlock()
			return res, err
		}
		res.Body = &lastOf{ReadCloser: res.Body, done: sync.OnceFunc(turn.Unlock)}
		return res, nil
	})
}

// lastOf is a body after which comes the next call.
type lastOf struct {
	io.ReadCloser
	done func()
}

// Close implements io.Closer.
func (b *lastOf) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}
