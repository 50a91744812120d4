package iam_test

import (
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
)

// Two components that shared an account would each have what both are permitted: names are cut, and then come to the same.
func TestTwoRequestsShareNoAccount(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("r", 49)
	list := []iam.Account{{Request: long + "-a", For: "CredentialsRequest a"}, {Request: long + "-b", For: "CredentialsRequest b"}}
	err := iam.Accounts{Owner: federation.OwnedBy("demo"), List: list}.Check()
	if want := "CredentialsRequest a and CredentialsRequest b come to the same service account demo-" + long + ": drop one of them"; err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
	roles := []iam.Account{{Request: "foo-bar", For: "CredentialsRequest a", Permissions: []string{"a.b.c"}}, {Request: "foobar", For: "CredentialsRequest b", Permissions: []string{"a.b.d"}}}
	err = iam.Accounts{Owner: federation.OwnedBy("demo"), List: roles}.Check()
	if want := "CredentialsRequest a and CredentialsRequest b come to the same custom role foobar: drop one of them"; err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
	if err := (iam.Accounts{Owner: federation.OwnedBy("demo"), List: list[:1]}).Check(); err != nil {
		t.Error(err)
	}
}
