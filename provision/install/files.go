package install

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/keypost/keypost/internal/awsconf"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/credrequest"
)

// UnknownAccount stands in dry-run files where the account's ID is not known. It is without <>, which JSON within JSON
// would escape.
const UnknownAccount = "ENTER_ACCOUNT_ID_HERE"

// futureProviderARN returns the ARN that a provider will have, as far as it is known without a call. The partition is
// guessed from the region, as ccoctl does.
func (o Options) futureProviderARN() string {
	account := awsiam.Account{ID: o.Account, Partition: awsconf.Partition(o.Region)}
	if account.ID == "" {
		account.ID = UnknownAccount
	}
	return account.ProviderARN(o.IssuerURL)
}

// writeAuthentication writes the manifest that gives a new cluster its issuer URL.
func (r *run) writeAuthentication(dir, issuerURL string) error {
	d, err := ccoctl.OpenDir(dir, ccoctl.ManifestsDir)
	if err != nil {
		return err
	}
	if err := r.write(d, ccoctl.AuthenticationFile(issuerURL)); err != nil {
		return err
	}
	r.line("%s", ccoctl.IssuerURL(issuerURL))
	return nil
}

// write writes files and logs where they are.
func (r *run) write(d *ccoctl.Dir, files ...ccoctl.File) error {
	if err := d.Write(files...); err != nil {
		return err
	}
	for _, f := range files {
		r.line("%s", d.Line(f))
	}
	return nil
}

// writeSecrets writes the Secret of each CredentialsRequest.
func (r *run) writeSecrets(dir string, set roleSet) ([]Secret, error) {
	d, err := ccoctl.OpenDir(dir, ccoctl.ManifestsDir)
	if err != nil {
		return nil, err
	}
	var files []ccoctl.File
	var secrets []Secret
	for _, q := range set.requests {
		f := r.secret(set.name, q)
		files, secrets = append(files, f), append(secrets, Secret{Namespace: q.SecretNamespace, File: d.Path(f.Name)})
	}
	return secrets, r.write(d, files...)
}

// secret returns the manifest of the Secret that a CredentialsRequest asks for. In a dry run the account, and with it the
// role's ARN, is not known.
func (r *run) secret(name string, q credrequest.Request) ccoctl.File {
	s := ccoctl.Secret{Namespace: q.SecretNamespace, Name: q.SecretName, RoleARN: q.RoleARN, TokenPath: q.CloudTokenPath}
	if s.RoleARN == "" && r.client != nil {
		s.RoleARN = r.account.RoleARN(ccoctl.RoleName(name, q.SecretNamespace, q.SecretName))
	}
	return s.File()
}

// writeProvider writes the dry-run files of an issuer: both documents and the provider.
func (r *run) writeProvider(o CreateOptions, key keystore.VerificationKey) error {
	url, err := keystore.ParseIssuerURL(o.IssuerURL, o.Dev)
	if err != nil {
		return err
	}
	set, err := keystore.New(keystore.Change{At: time.Now()}, keystore.Spec{
		Name: "dry-run", Issuers: []keystore.IssuerURL{url}, Keys: []keystore.VerificationKey{key}, Dev: o.Dev,
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
	d, err := ccoctl.OpenDir(o.Dir)
	if err != nil {
		return err
	}
	return r.write(d, ccoctl.DiscoveryFile(indented(discovery)), ccoctl.JWKSFile(indented(jwks)), ccoctl.ProviderFile(o.provider().CreateJSON()))
}

// writeRoles writes the dry-run files of the roles, and their Secrets. They are numbered by their CredentialsRequest.
func (r *run) writeRoles(dir string, set roleSet, trust awsiam.Trust) error {
	d, err := ccoctl.OpenDir(dir, ccoctl.ManifestsDir)
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
		id := ccoctl.RoleID{Number: i, Installation: set.name, Namespace: q.SecretNamespace, Secret: q.SecretName}
		if err := r.write(d, id.Files(role.CreateJSON(trust), role.PolicyJSON())...); err != nil {
			return err
		}
	}
	_, err = r.writeSecrets(dir, set)
	return err
}

// indented returns JSON for people.
func indented(data []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, data, "", "    ") != nil {
		return data
	}
	return b.Bytes()
}
