package install

import (
	"fmt"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
)

// AccountError reports credentials for another account than the one that is meant.
type AccountError struct{ Account, Want string }

func (e *AccountError) Error() string {
	return fmt.Sprintf("the credentials are for account %s, not for %s; nothing was changed", e.Account, e.Want)
}

// HalfKeyPairError reports a public key file without its private half. A new pair must not replace it: the cluster would
// go on signing with the old one.
type HalfKeyPairError struct{ Private, Public string } // paths

func (e *HalfKeyPairError) Error() string {
	return fmt.Sprintf("%s is there without its private half %s", e.Public, e.Private)
}

// KeyPairError reports key files that are not the two halves of one key.
type KeyPairError struct{ Private, Public string } // paths

func (e *KeyPairError) Error() string {
	return fmt.Sprintf("%s and %s are not the two halves of one key", e.Private, e.Public)
}

// InstalledKeyError reports another cluster's signing key in the place from which the installer takes it.
type InstalledKeyError struct{ Path, Private string }

func (e *InstalledKeyError) Error() string {
	return fmt.Sprintf("%s holds another signing key than %s", e.Path, e.Private)
}

// NoRequestsError reports a directory without CredentialsRequests. It is hardly ever the one that was meant, and a cluster
// without roles does not start.
type NoRequestsError struct {
	Dir     string
	Skipped int // manifests that were left out
}

func (e *NoRequestsError) Error() string {
	return fmt.Sprintf("%s has no CredentialsRequest for AWS in any file named *.yaml or *.yml (%s left out)", e.Dir,
		plural(e.Skipped, "thing was", "things were"))
}

// ForeignProviderError reports an IAM OIDC identity provider of another account or partition than the credentials'.
type ForeignProviderError struct{ ProviderARN, Account, Partition string }

func (e *ForeignProviderError) Error() string {
	return fmt.Sprintf("the provider %s is of another account or partition than the credentials, which are for account %s (%s); "+
		"roles trust a provider of their own account only", e.ProviderARN, e.Account, e.Partition)
}

// ProviderError reports a provider that cannot be read, such as one that is not there.
type ProviderError struct {
	IssuerURL string
	Err       error
}

func (e *ProviderError) Error() string { return e.Err.Error() }
func (e *ProviderError) Unwrap() error { return e.Err }

// AudienceError reports audiences for which a provider takes no tokens.
type AudienceError struct {
	ProviderARN         string
	Unknown, Registered []string
}

func (e *AudienceError) Error() string {
	return fmt.Sprintf("%s takes no tokens for the audience %s (it takes %s), so that AWS refuses them whatever the role says",
		e.ProviderARN, strings.Join(e.Unknown, ", "), strings.Join(e.Registered, ", "))
}

// LostAudienceError reports an audience of the old issuer's provider that the new one's would not take.
type LostAudienceError struct{ OldProviderARN, NewIssuer, Audience string }

func (e *LostAudienceError) Error() string {
	return fmt.Sprintf("%s takes tokens for the audience %s, which is left out: they would be refused under %s",
		e.OldProviderARN, e.Audience, e.NewIssuer)
}

// NameError reports that the installation's name cannot be that of a key set.
type NameError struct {
	URL string // to publish
	Err error
}

func (e *NameError) Error() string {
	return fmt.Sprintf("the key set is published under the installation's name: %v", e.Err)
}
func (e *NameError) Unwrap() error { return e.Err }

// ClaimError reports that an issuer URL or the name for its key set is not free. Err is an error of keystore/catalog.
type ClaimError struct {
	Name keystore.Name
	URL  string
	Err  error
}

func (e *ClaimError) Error() string {
	return fmt.Sprintf("publish %s under the name %q: %v", e.URL, e.Name, e.Err)
}
func (e *ClaimError) Unwrap() error { return e.Err }

// UnreadError reports that a document which cannot be read may have the issuer URL. Err is a [*catalog.UnreadError].
type UnreadError struct {
	Name keystore.Name
	URL  string
	Err  error
}

func (e *UnreadError) Error() string { return fmt.Sprintf("publish %s: %v", e.URL, e.Err) }
func (e *UnreadError) Unwrap() error { return e.Err }

// PublishedKeyError reports a published key set that does not have the cluster's key, or has it as retired. Tokens signed
// with it are or will be trusted by nobody, and adding a key to a live issuer is a rotation, with gates of its own.
type PublishedKeyError struct {
	KeySet  keystore.Name
	URL     string
	Key     keystore.KeyID // empty if it is still to be generated
	Source  string         // of Key: a file, or the old issuer
	Retired bool           // the key set has it
}

func (e *PublishedKeyError) Error() string {
	switch {
	case e.Key == "":
		return fmt.Sprintf("%s is published already (key set %q), and tokens signed with a new key pair would not be trusted", e.URL, e.KeySet)
	case e.Retired:
		return fmt.Sprintf("key %s of %s is retired in key set %q: nothing may sign with it", e.Key, e.Source, e.KeySet)
	}
	return fmt.Sprintf("key set %q (%s) does not have the key %s of %s, so that no token signed with it would be trusted",
		e.KeySet, e.URL, e.Key, e.Source)
}

// NotServedError reports that an issuer is stored and was not served in time.
type NotServedError struct {
	URL    string
	KeySet keystore.KeySet
	Waited time.Duration
	Err    error
}

func (e *NotServedError) Error() string {
	return fmt.Sprintf("%s is stored but after %v not served: %v", e.URL, e.Waited, e.Err)
}
func (e *NotServedError) Unwrap() error { return e.Err }

// OldKeysError reports that the keys of the old issuer cannot be read.
type OldKeysError struct {
	Issuer string
	Err    error
}

func (e *OldKeysError) Error() string { return fmt.Sprintf("read the keys of %s: %v", e.Issuer, e.Err) }
func (e *OldKeysError) Unwrap() error { return e.Err }

// MovedKeyError reports that the key set under the new issuer URL lacks a key of the old one.
type MovedKeyError struct {
	KeySet   keystore.Name
	URL, Old string
	Key      keystore.KeyID
}

func (e *MovedKeyError) Error() string {
	return fmt.Sprintf("key set %q (%s) does not have the key %s of %s, so that no token signed with it would be trusted",
		e.KeySet, e.URL, e.Key, e.Old)
}

// ClusterError reports a cluster that is neither the old issuer nor the new one.
type ClusterError struct{ Address, SignsAs, Old, New string }

func (e *ClusterError) Error() string {
	return fmt.Sprintf("the kube-apiserver at %s signs as %s, which is neither %s nor %s", e.Address, e.SignsAs, e.Old, e.New)
}

// StillSignsError is a closed gate: a kube-apiserver does not sign as the new issuer yet.
type StillSignsError struct{ Err *keystore.NotYetError }

func (e *StillSignsError) Error() string { return e.Err.Error() }
func (e *StillSignsError) Unwrap() error { return e.Err }

// LifetimeError is a closed gate: nothing says how long tokens live.
type LifetimeError struct{ Err *keystore.NotYetError }

func (e *LifetimeError) Error() string { return e.Err.Error() }
func (e *LifetimeError) Unwrap() error { return e.Err }
