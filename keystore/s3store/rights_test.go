package s3store

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// request is one call as a policy sees it.
type request struct{ action, resource, prefix string }

// requestOf tells which IAM action a request needs
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/using-with-s3-policy-actions.html).
func requestOf(t *testing.T, r *http.Request) request {
	t.Helper()
	arn := "arn:aws:s3:::" + strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("list-type") == "2":
		return request{"s3:ListBucket", strings.TrimSuffix(arn, "/"), r.URL.Query().Get("prefix")}
	case r.Method == http.MethodGet && strings.Contains(arn, "/"):
		return request{"s3:GetObject", arn, ""}
	case r.Method == http.MethodPut && strings.Contains(arn, "/") && r.URL.Query().Get("uploadId") == "" && !r.URL.Query().Has("acl"):
		return request{"s3:PutObject", arn, ""}
	}
	t.Errorf("no policy covers %s %s", r.Method, r.URL)
	return request{}
}

// allows evaluates a policy as far as ours go.
func (p policy) allows(r request) (by string) {
	for _, st := range p.Statement {
		resource, _ := path.Match(st.Resource, r.resource) // its * stops at a slash, and no key of ours has one below the prefix
		prefix, limited := st.Condition["StringLike"]["s3:prefix"]
		if limited {
			limited = !strings.HasPrefix(r.prefix, strings.TrimSuffix(prefix, "*"))
		}
		if slices.Contains(st.Action, r.action) && resource && !limited {
			return r.action
		}
	}
	return ""
}

func parsed(t *testing.T, text []byte, err error) policy {
	t.Helper()
	must(t, err)
	var p policy
	must(t, json.Unmarshal(text, &p))
	return p
}

// The policies are the least: they allow every call that is made, and hold no action that none of them needs.
func TestThePoliciesAllowTheCallsThatAreMade(t *testing.T) {
	for _, prefix := range []string{"clusters", "a/b"} {
		f, url := newFake(t)
		o := Options{Prefix: prefix}
		st := open(t, url, o)
		o.Bucket = bucket
		reads := func() []*http.Request {
			f.calls = nil
			list(t, st)
			_, _, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
			if err != nil && !errors.Is(err, keystore.ErrNotFound) {
				t.Error(err)
			}
			return f.calls
		}
		create(t, st, "prod-a")
		_, err := keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("x"))
		must(t, err)
		writes := f.calls
		f.answer = func(w http.ResponseWriter, r *http.Request) bool { // what does not exist, as S3 answers under a condition
			if !strings.HasSuffix(r.URL.Path, "prod-b.yaml") {
				return false
			}
			f.calls = append(f.calls, r)
			refuse(w, http.StatusForbidden, "AccessDenied")
			return true
		}
		reading := reads()
		_, _, err = keystore.NewStore(st).Load(t.Context(), "prod-b")
		wantError(t, err, keystore.ErrNotFound, "")
		reading = append(reading, f.calls...)

		text, err := readerPolicy(o)
		wantLeast(t, parsed(t, text, err), reading)
		for _, r := range writes {
			if by := parsed(t, text, err).allows(requestOf(t, r)); by == "s3:PutObject" {
				t.Errorf("a reader may %s %s", r.Method, r.URL)
			}
		}
		text, err = writerPolicy(o)
		wantLeast(t, parsed(t, text, err), append(writes, reading...))
	}
}

func wantLeast(t *testing.T, p policy, calls []*http.Request) {
	t.Helper()
	used := map[string]bool{}
	for _, r := range calls {
		by := p.allows(requestOf(t, r))
		if by == "" {
			t.Errorf("the policy does not allow %s %s", r.Method, r.URL)
		}
		used[by] = true
	}
	var allowed []string
	for _, st := range p.Statement {
		allowed = append(allowed, st.Action...)
	}
	slices.Sort(allowed)
	if needed := slices.Sorted(maps.Keys(used)); !slices.Equal(needed, allowed) {
		t.Errorf("the policy allows %v, and %v is what is used", allowed, needed)
	}
}

// grant makes a policy of ours the bucket's, for one user: a bucket's policy differs in that it names its principals.
func grant(t *testing.T, st *Backend, user string, text []byte, err error) {
	t.Helper()
	must(t, err)
	var p map[string]any
	must(t, json.Unmarshal(text, &p))
	for _, statement := range p["Statement"].([]any) {
		statement.(map[string]any)["Principal"] = map[string]any{"AWS": []string{user}}
	}
	text, err = json.Marshal(p)
	must(t, err)
	_, err = st.s3.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: aws.String(bucket), Policy: aws.String(string(text))})
	must(t, err)
}

func (sv *server) addUser(t *testing.T, key, secret string) {
	t.Helper()
	out, err := exec.Command(program(t, "versitygw"), "admin", "--access", rootKey, "--secret", rootPass, "--endpoint-url", sv.url,
		"create-user", "--access", key, "--secret", secret, "--role", "user").CombinedOutput()
	if err != nil {
		t.Fatalf("add user %s: %v: %s", key, err, out)
	}
}

// What a mirror's policy does not allow is refused by the store itself.
func TestAReaderCannotWrite(t *testing.T) {
	sv := gateway(t)
	o := Options{Prefix: "clusters"}
	root := open(t, sv.url, o)
	create(t, root, "prod-a")
	elsewhere := open(t, sv.url, Options{Prefix: "others"})
	create(t, elsewhere, "prod-x")
	before := list(t, root)

	sv.addUser(t, "reader", "reader-secret")
	o.Bucket = bucket
	text, err := readerPolicy(o)
	grant(t, root, "reader", text, err)
	as(t, "reader", "reader-secret")
	st := reopen(t, sv.url, o)

	if all := list(t, st); !maps.Equal(all, before) {
		t.Errorf("a reader lists %v, want %v", all, before)
	}
	_, _, err = keystore.NewStore(st).Load(t.Context(), "prod-a")
	must(t, err)
	_, _, err = keystore.NewStore(st).Load(t.Context(), "prod-b")
	wantError(t, err, keystore.ErrNotFound, "")
	_, err = keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("x"))
	wantError(t, err, keystore.ErrReadOnly, "the credentials do not allow s3:PutObject on s3://keysets/clusters/")
	st.proven = true // as if the probe were the only thing that is refused
	_, err = keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("x"))
	wantError(t, err, keystore.ErrReadOnly, "prod-a.yaml")
	wantError(t, keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, "prod-c")), keystore.ErrReadOnly, "")
	_, err = st.s3.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String(bucket), Key: aws.String("clusters/prod-a.yaml")})
	wantError(t, err, nil, "AccessDenied")
	wantNothingElsewhere(t, sv)

	as(t, rootKey, rootPass)
	if all := list(t, reopen(t, sv.url, Options{Prefix: "clusters"})); !maps.Equal(all, before) {
		t.Errorf("afterwards the store has %v, want %v", all, before)
	}
}

// wantNothingElsewhere checks that the present user sees nothing of another prefix, nor of the whole bucket.
func wantNothingElsewhere(t *testing.T, sv *server) {
	t.Helper()
	for _, prefix := range []string{"others", "", "clust"} {
		st := reopen(t, sv.url, Options{Prefix: prefix})
		_, err := st.List(t.Context())
		wantError(t, err, nil, "do not allow s3:ListBucket")
		_, _, err = keystore.NewStore(st).Load(t.Context(), "prod-x")
		wantError(t, err, nil, "do not allow s3:GetObject")
		if errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("what may not be read counts as absent: %v", err)
		}
	}
}

func TestAWriterWritesUnderItsPrefixOnly(t *testing.T) {
	sv := gateway(t)
	o := Options{Prefix: "clusters"}
	root := open(t, sv.url, o)
	create(t, open(t, sv.url, Options{Prefix: "others"}), "prod-x")
	sv.addUser(t, "writer", "writer-secret")
	o.Bucket = bucket
	text, err := writerPolicy(o)
	grant(t, root, "writer", text, err)
	as(t, "writer", "writer-secret")
	st := reopen(t, sv.url, o)

	create(t, st, "prod-a")
	_, err = keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("x"))
	must(t, err)
	_, err = st.s3.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String(bucket), Key: aws.String("clusters/prod-a.yaml")})
	wantError(t, err, nil, "AccessDenied")
	err = keystore.Create(t.Context(), keystore.NewStore(reopen(t, sv.url, Options{Prefix: "others"})), storetest.KeySet(t, "prod-y"))
	wantError(t, err, keystore.ErrReadOnly, "")
	wantNothingElsewhere(t, sv)
}

func TestPolicies(t *testing.T) {
	documented, err := os.ReadFile("testdata/reader-policy.json")
	must(t, err)
	if text, err := readerPolicy(Options{Bucket: "keysets", Prefix: "clusters"}); err != nil || string(text)+"\n" != string(documented) {
		t.Errorf("readerPolicy = %s, %v; want what testdata/reader-policy.json has", text, err)
	}
}
