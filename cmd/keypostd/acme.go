package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/issuer/listen"
)

// loadACME sets certificates by ACME up for the configured hosts, or for those that clients reach this server under.
func loadACME(a acmeConfig, hosts []string) (listen.Certificates, error) {
	names, err := acmeHosts(a.Hosts, hosts)
	if err != nil {
		return nil, err
	}
	certificates, err := listen.NewACME(a.settings(names))
	if err != nil {
		return nil, fmt.Errorf("set up ACME: %w", err)
	}
	return certificates, nil
}

// settings returns what listen has to know to order certificates for hosts.
func (a acmeConfig) settings(hosts []string) listen.ACMEConfig {
	c := listen.ACMEConfig{Hosts: hosts, Cache: a.Cache, Directory: a.Directory, CAFile: a.CAFile, Email: a.Email, HTTP01: a.HTTPAddress != ""}
	if a.Directory == "staging" {
		c.Directory = listen.LetsEncryptStaging
	}
	if x := a.ExternalAccount; x != nil {
		c.KeyID, c.MACKeyFile = x.KeyID, x.HMACKeyFile
	}
	return c
}

// acmeHosts returns the hosts to order certificates for: the configured ones, which must have all that are needed, else those.
func acmeHosts(configured, needed []string) ([]string, error) {
	for _, host := range needed {
		switch {
		case strings.HasPrefix(host, "*.") && len(configured) == 0:
			return nil, fmt.Errorf("listen.tls.acme.hosts is empty, but issuerURLs has hosts below %s: name each of them, at most %d", host[2:], listen.MaxACMEHosts)
		case !strings.HasPrefix(host, "*.") && len(configured) > 0 && !slices.Contains(configured, host):
			return nil, fmt.Errorf("listen.tls.acme.hosts does not have %s, under which clients ask this server; add it", host)
		}
	}
	if len(configured) == 0 {
		return needed, nil
	}
	return configured, nil
}

// prepareACME makes the certificate cache. --check makes nothing: it may run as another user.
func (d *daemon) prepareACME() error {
	if certificates, ok := d.certificates.(*listen.ACME); ok {
		return certificates.Prepare()
	}
	return nil
}

// serveChallenges answers the CA on a listener of its own until ctx is done, if there is one. It calls up once it does, or has no need to.
func (d *daemon) serveChallenges(ctx context.Context, up func()) error {
	certificates, ok := d.certificates.(*listen.ACME)
	if !ok || !certificates.HTTP01() {
		up()
		return nil
	}
	return listen.Serve(ctx, d.challengeListener(certificates, up))
}

// challengeListener is what the CA asks over plain HTTP.
func (d *daemon) challengeListener(certificates *listen.ACME, up func()) listen.Config {
	return listen.Config{
		Address: d.c.Listen.TLS.ACME.HTTPAddress, Handler: certificates.Challenges(), MaxConnections: listen.MaxChallengers,
		DrainTimeout: time.Second, Log: d.log.Named("challenges"),
		Listening: func(a net.Addr) {
			d.log.Info("challenge listener is up", zap.Stringer("address", a))
			up()
		},
	}
}
