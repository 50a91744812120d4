package cli

import (
	"testing"

	"github.com/keypost/keypost/keystore/kubestore"
	"github.com/keypost/keypost/keystore/s3store"
)

func TestParsePlace(t *testing.T) {
	for raw, want := range map[string]Place{
		"file:///srv/keys%20ets": {Scheme: "file", Dir: "/srv/keys ets"},
		"file://./keysets":       {Scheme: "file", Dir: "./keysets"},
		"s3://bucket":            {Scheme: "s3", s3: s3store.Options{Bucket: "bucket"}},
		"s3://bucket/a/b?region=eu-west-1&profile=p&roleArn=arn:aws:iam::123456789012:role/r&endpoint=https://s3.example.com": {Scheme: "s3", s3: s3store.Options{
			Bucket: "bucket", Prefix: "a/b", Region: "eu-west-1", Profile: "p", RoleARN: "arn:aws:iam::123456789012:role/r", Endpoint: "https://s3.example.com",
		}},
		"kubernetes://keypost":                                  {Scheme: "kubernetes", namespace: "keypost"},
		"kubernetes://keypost/?kubeconfig=/etc/kc&context=c%2F": {Scheme: "kubernetes", namespace: "keypost", kubernetes: kubestore.Options{Kubeconfig: "/etc/kc", Context: "c/"}},
	} {
		if got, err := ParsePlace(raw); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", raw, got, err, want)
		}
	}
}
