package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/keypost/keypost/internal/awsconf"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/ccoctl"
)

// path is where a file of the output directory is, as ccoctl logs it: as the directory was given.
func (f *awsFlags) path(name string) string {
	return filepath.Join(f.outputDir, filepath.FromSlash(name))
}

// authentication is the manifest that tells a new cluster its issuer URL.
func (r *awsRun) writeAuthentication() error {
	d, err := ccoctl.OpenDir(r.f.outputDir, ccoctl.ManifestsDir)
	if err != nil {
		return err
	}
	file := ccoctl.AuthenticationFile(r.f.issuerURL)
	if err := d.Write(file); err != nil {
		return err
	}
	r.journal.printf("%s", ccoctl.AuthenticationWritten(r.f.path(file.Name)))
	r.journal.printf("%s", ccoctl.IssuerURL(r.f.issuerURL))
	return nil
}

// writeSecrets writes the Secret of each CredentialsRequest.
func (r *awsRun) writeSecrets(set roleSet) error {
	d, err := ccoctl.OpenDir(r.f.outputDir, ccoctl.ManifestsDir)
	if err != nil {
		return err
	}
	var files []ccoctl.File
	for _, q := range set.requests {
		files = append(files, r.secret(q))
	}
	if err := d.Write(files...); err != nil {
		return err
	}
	for _, file := range files {
		r.journal.printf("%s", ccoctl.SecretSaved(r.f.path(file.Name)))
	}
	return nil
}

// dryRunAll writes what create-all would put into the account, for the AWS CLI. As with ccoctl the key pair is a real
// one, and stays.
func (r *awsRun) dryRunAll(j *job) error {
	if err := r.makeKeyPair(&j.keys); err != nil {
		return err
	}
	if err := r.writeProvider(j); err != nil {
		return err
	}
	if err := r.writeAuthentication(); err != nil {
		return err
	}
	if r.f.requestsDir == "" {
		return nil
	}
	if err := r.writeRoles(j.roles, r.trust(r.f.futureProviderARN())); err != nil {
		return err
	}
	if err := r.copySigningKey(j.keys); err != nil || r.f.account != "" {
		return err
	}
	r.notice("put the account's ID in the place of %s in %s, or give it with --account", unknownAccount, r.f.path(ccoctl.RoleFiles))
	return nil
}

// unknownAccount stands in files where the account's ID is not known. It is without <>, which JSON within JSON would make
// unrecognisable.
const unknownAccount = "ENTER_ACCOUNT_ID_HERE"

// futureProviderARN is the ARN that the provider will have, as far as it is known without a call. A partition is
// guessed from the region, as ccoctl does.
func (f *awsFlags) futureProviderARN() string {
	account := awsiam.Account{ID: f.account, Partition: awsconf.Partition(f.region)}
	if account.ID == "" {
		account.ID = unknownAccount
	}
	return account.ProviderARN(f.issuerURL)
}

func (r *awsRun) writeProvider(j *job) error {
	url, err := keystore.ParseIssuerURL(r.f.issuerURL, r.f.dev)
	if err != nil {
		return err
	}
	set, err := keystore.New(keystore.Change{At: time.Now()}, keystore.Spec{
		Name: "dry-run", Issuers: []keystore.IssuerURL{url}, Keys: []keystore.VerificationKey{j.keys.key}, Policy: newPolicy(), Dev: r.f.dev,
	})
	if err != nil {
		return err
	}
	discovery, err := issuer.RenderDiscovery(set, set.Issuers()[0])
	if err != nil {
		return err
	}
	jwks, err := issuer.RenderJWKS(set)
	if err != nil {
		return err
	}
	d, err := ccoctl.OpenDir(r.f.outputDir)
	if err != nil {
		return err
	}
	files := []ccoctl.File{
		ccoctl.DiscoveryFile(indented(discovery)), ccoctl.JWKSFile(indented(jwks)), ccoctl.ProviderFile(j.provider.CreateJSON()),
	}
	if err := d.Write(files...); err != nil {
		return err
	}
	for i, line := range []func(path string) string{ccoctl.DiscoverySaved, ccoctl.JWKSSaved, ccoctl.ProviderSaved} {
		r.journal.printf("%s", line(r.f.path(files[i].Name)))
	}
	return nil
}

// writeRoles writes the roles' files and Secrets. They are numbered by their CredentialsRequest, as ccoctl does it.
func (r *awsRun) writeRoles(set roleSet, trust awsiam.Trust) error {
	d, err := ccoctl.OpenDir(r.f.outputDir, ccoctl.ManifestsDir)
	if err != nil {
		return err
	}
	roles := set.roles
	for i, q := range set.requests {
		if q.RoleARN != "" {
			continue
		}
		role := roles[0]
		roles = roles[1:]
		id := ccoctl.RoleID{Number: i, Installation: r.f.name, Namespace: q.SecretNamespace, Secret: q.SecretName}
		files := []ccoctl.File{
			ccoctl.RoleFile(id, role.CreateJSON(trust)), ccoctl.RolePolicyFile(id, role.PolicyJSON()),
		}
		if err := d.Write(files...); err != nil {
			return err
		}
		r.journal.printf("%s", ccoctl.RoleSaved(q.SecretNamespace, q.SecretName, r.f.path(files[0].Name)))
		r.journal.printf("%s", ccoctl.RolePolicySaved(q.SecretNamespace, q.SecretName, r.f.path(files[1].Name)))
	}
	return r.writeSecrets(set)
}

// indented is JSON for people.
func indented(data []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, data, "", "    ") != nil {
		return data
	}
	return b.Bytes()
}
