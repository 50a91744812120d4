package install

import (
	"fmt"

	"github.com/keypost/keypost/keystore"
)

// Error is an error about which the caller can do something.
type Error struct {
	Problem  Problem
	KeySet   keystore.Name // with NotServed, OnlyCopies, OthersKey, KeyNeeded and KeyNotPublished
	File     string        // with HalfKeyPair: the public key. With OthersDir: the manifest with the other issuer URL. With OthersKey: the source of the key. With KeyNotPublished: the source of the missing key
	Provider string        // its ARN or, in another cloud, its ID, with ProviderUnread, UnknownAudience and LostAudience
	Audience string        // with UnknownAudience and LostAudience
	Err      error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Problem is the kind of an [Error].
type Problem int

// The problems.
const (
	WrongAccount    Problem = iota + 1 // the credentials are for another account than the one that is meant
	OthersDir                          // the output directory has the manifests of another issuer's cluster
	HalfKeyPair                        // a public key file is there without its private half, with which a cluster may sign
	KeyPairMismatch                    // the key files are not the two halves of one key
	OtherSigningKey                    // another cluster's signing key is in the place from which the installer takes it
	NoRequests                         // a directory has no CredentialsRequest; a cluster without roles does not start
	ForeignProvider                    // the provider belongs to another account or partition than the credentials, or for another issuer
	ProviderUnread                     // the provider cannot be read; perhaps it is not there
	UnknownAudience                    // the provider takes no tokens for an audience
	LostAudience                       // the old issuer's provider takes an audience that the new one's would not
	BadName                            // the installation's name cannot be that of a key set
	Taken                              // the issuer URL or the name for its key set is not free
	Withdrawn                          // the issuer URL belonged to a key set that was withdrawn
	KeyNeeded                          // the issuer is published, and a key that is still to be generated would be trusted by nobody
	NoKey                              // no public key is given, and none is stored under the issuer URL
	OthersKey                          // another key set publishes the key, whose cluster could speak for this one
	KeyRetired                         // the published key set has the cluster's key as retired
	KeyNotPublished                    // the published key set does not have the cluster's key; to add it is a rotation, with gates of its own
	NotServed                          // the key set is stored and was not served in time
	OnlyCopies                         // the published key set's documents are read by nobody, and the cloud would have to fetch them
	OldKeysUnread                      // the keys of the old issuer cannot be read
	WrongCluster                       // the cluster signs as neither the old issuer nor the new one
)

// Refuse returns the error for a problem.
func Refuse(p Problem, format string, args ...any) *Error {
	return &Error{Problem: p, Err: fmt.Errorf(format, args...)}
}
