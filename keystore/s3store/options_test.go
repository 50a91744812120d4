package s3store

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOpenRefuses(t *testing.T) {
	as(t, rootKey, rootPass)
	_, err := Open(t.Context(), Options{Bucket: "keysets"})
	wantError(t, err, nil, "region=")
	_, err = Open(t.Context(), Options{Bucket: "keysets", Region: "eu-central-1", Profile: "nobody"})
	wantError(t, err, nil, "nobody")
	_, err = Open(t.Context(), Options{Bucket: "keysets", Region: "eu-central-1", Endpoint: "http://s3.example"})
	wantError(t, err, nil, "not https")
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://s3.example")
	_, err = Open(t.Context(), Options{Bucket: "keysets", Region: "eu-central-1"})
	wantError(t, err, nil, "not https")
}

// The store's URL names the credentials: with a profile, keys of the environment mean the target account and no more.
func TestWhoseCredentials(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	must(t, os.WriteFile(config, []byte(`
[profile keys]
aws_access_key_id = of-the-profile
aws_secret_access_key = secret
[profile other]
aws_access_key_id = of-another
aws_secret_access_key = secret
`), 0o600))
	for _, c := range []struct {
		name      string
		profile   string
		env       map[string]string
		accessKey string
	}{
		{"keys in the environment", "", nil, rootKey},
		{"a profile before those", "keys", nil, "of-the-profile"},
		{"AWS_PROFILE after those", "", map[string]string{"AWS_PROFILE": "other"}, rootKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			as(t, rootKey, rootPass)
			t.Setenv("AWS_CONFIG_FILE", config)
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			st, err := Open(t.Context(), Options{Bucket: "keysets", Region: "eu-central-1", Profile: c.profile})
			must(t, err)
			is, err := st.s3.Options().Credentials.Retrieve(t.Context())
			if err != nil || is.AccessKeyID != c.accessKey {
				t.Errorf("the access key is %q, %v; want %q", is.AccessKeyID, err, c.accessKey)
			}
		})
	}
}
