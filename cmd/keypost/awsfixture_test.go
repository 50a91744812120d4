package main

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keypost/keypost/test/fakeaws"
	"github.com/keypost/keypost/test/fakecloud"
)

// accounts are the AWS accounts that scripts have started, by working directory: a script's commands share one.
type accounts struct{ t testing.TB }

type accountKey struct{}

// start plays an AWS account from here on: fakeaws [PARTITION|ports|TRUSTLIMIT|issuer|private]. All commands of the script talk to it.
// With ports, issuer URLs may have one; a number is how long trust policies may be; with issuer, its STS reaches what serve
// has published, and takes its CA for a public one; with private, for one that it does not know.
func (a accounts) start(ts *testscript.TestScript, args []string) {
	o := fakeaws.Options{}
	if len(args) == 1 {
		switch n, err := strconv.Atoi(args[0]); {
		case err == nil:
			o.TrustLimit = n
		case args[0] == "ports":
			o.AllowPorts = true
		case args[0] == "issuer" || args[0] == "private":
			if args[0] == "issuer" {
				o.Roots = x509.NewCertPool()
				o.Roots.AppendCertsFromPEM([]byte(ts.ReadFile(ts.Getenv("CA"))))
			}
			o.Dial = dialing("127.0.0.1:" + ts.Getenv("PORT"))
		default:
			o.Partition = args[0]
		}
	}
	s := fakeaws.Start(a.t, o)
	setenv(ts, s.Env()...)
	ts.Setenv("AWS_ADDRESS", strings.TrimPrefix(s.URL, "http://"))
	ts.Value(accountKey{}).(*fakeAccount).Server = s
}

// dialing leads every host name to an address.
func dialing(address string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

// setenv sets variables of a script, given as NAME=VALUE.
func setenv(ts *testscript.TestScript, env ...string) {
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if before := ts.Getenv(name); name == "SSL_CERT_FILE" && before != "" {
			value = trustAll(ts, ts.MkAbs("."), before, value)
		}
		ts.Setenv(name, value)
	}
}

type fakeAccount struct{ *fakeaws.Server }

func accountOf(ts *testscript.TestScript) *fakeaws.Server {
	s := ts.Value(accountKey{}).(*fakeAccount).Server
	if s == nil {
		ts.Fatalf("fakeaws was not started")
	}
	return s
}

// recorder is a cloud that records its calls.
type recorder interface {
	Calls() []fakecloud.Call
	ResetCalls()
}

func compareCalls(ts *testscript.TestScript, s recorder, args []string) {
	counts, writes := map[string]int{}, []string{}
	for _, c := range s.Calls() {
		counts[c.Action]++
		if c.Write {
			writes = append(writes, c.Action)
		}
	}
	s.ResetCalls()
	switch args[0] {
	case "none":
		if len(counts) > 0 {
			ts.Fatalf("there were calls: %v", counts)
		}
	case "reads":
		if len(writes) > 0 {
			ts.Fatalf("there were writes: %v", writes)
		}
	default:
		for _, arg := range args {
			action, n, _ := strings.Cut(arg, "=")
			if strconv.Itoa(counts[action]) != n {
				ts.Fatalf("%d calls of %s, not %s (%v)", counts[action], action, n, counts)
			}
		}
	}
}

// linesOf are the lines that a command of ours says for its calls that write, by action.
func linesOf() map[string]string {
	return map[string]string{
		"CreateOpenIDConnectProvider":             "Identity Provider created with ARN: ",
		"AddClientIDToOpenIDConnectProvider":      "Client ID .* added to Identity Provider",
		"RemoveClientIDFromOpenIDConnectProvider": "Client ID .* removed from Identity Provider",
		"UpdateOpenIDConnectProviderThumbprint":   "Thumbprints of Identity Provider .* updated",
		"TagOpenIDConnectProvider":                "Identity Provider with ARN .* tagged ",
		"UntagOpenIDConnectProvider":              "Tag .* removed from Identity Provider",
		"DeleteOpenIDConnectProvider":             "Identity Provider with ARN .* deleted",
		"CreateRole":                              "Role arn:.* created",
		"TagRole":                                 "Role .* tagged ",
		"UpdateAssumeRolePolicy":                  "Trust policy of Role .* updated",
		"PutRolePermissionsBoundary":              "Permissions boundary of Role .* set to ",
		"PutRolePolicy":                           "Updated Role policy for Role ",
		"AttachRolePolicy":                        "Policy .* attached to IAM Role ",
		"DetachRolePolicy":                        "Policy .* detached from IAM Role ",
		"DeleteRolePolicy":                        "Policy .* associated with IAM Role .* deleted",
		"DeleteRole":                              "IAM Role .* deleted",
	}
}

// said is compareLines of whatever writes: said COUNT
func said(ts *testscript.TestScript, args []string) {
	if counts := compareLines(ts, accountOf(ts), args[0], linesOf()); len(counts) > 0 {
		ts.Fatalf("no line is known for %v", counts)
	}
}

// compareLines holds the calls that wrote since the last time, so many, against what the last command printed: a line for each, and no
// line for a call that was not made. It returns how often others wrote than those whose lines are given, by action.
func compareLines(ts *testscript.TestScript, s recorder, writes string, lines map[string]string) map[string]int {
	text, counts, total := ts.ReadFile("stderr"), map[string]int{}, 0
	for _, c := range s.Calls() {
		if c.Write && c.Code == "" {
			counts[c.Action]++
			total++
		}
	}
	s.ResetCalls()
	if strconv.Itoa(total) != writes {
		ts.Fatalf("%d calls wrote, not %s: %v", total, writes, counts)
	}
	for action, line := range lines {
		found := len(regexp.MustCompile(`(?m)^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d `+line).FindAllString(text, -1))
		if found != counts[action] {
			ts.Fatalf("%d calls of %s and %d lines %q", counts[action], action, found, line)
		}
		delete(counts, action)
	}
	return counts
}

// describe is what an account holds. What differs in every run is left out.
func describe(s fakeaws.State) string {
	var b strings.Builder
	for _, p := range s.Providers {
		fmt.Fprintf(&b, "provider %s\n  clients %s\n  tags %s\n", p.ARN, asJSON(sorted(p.ClientIDs)), asJSON(p.Tags))
	}
	for _, r := range s.Roles {
		fmt.Fprintf(&b, "role %s\n  description %s\n  boundary %s\n", r.ARN, r.Description, r.Boundary)
		fmt.Fprintf(&b, "  tags %s\n  trust %s\n", asJSON(r.Tags), r.Trust)
		for name, policy := range r.Inline {
			fmt.Fprintf(&b, "  inline %s %s\n", name, policy)
		}
		for _, arn := range sorted(r.Attached) {
			fmt.Fprintf(&b, "  attached %s\n", arn)
		}
	}
	return b.String()
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// callIAM changes the account behind keypost's back, as somebody at the console would: iam ACTION NAME=VALUE… A value
// @FILE is the file's text.
func callIAM(ts *testscript.TestScript, args []string) {
	form := url.Values{"Action": {args[0]}}
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		if file, is := strings.CutPrefix(value, "@"); is {
			value = ts.ReadFile(file)
		}
		form.Set(name, value)
	}
	ts.Check(askIAM(accountOf(ts), form))
}

// askIAM sends one request, signed by the account's owner.
func askIAM(s *fakeaws.Server, form url.Values) error {
	form.Set("Version", "2010-05-08")
	body := form.Encode()
	req, err := http.NewRequest(http.MethodPost, s.URL, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var credentials aws.Credentials
	for _, kv := range s.Env() {
		switch name, value, _ := strings.Cut(kv, "="); name {
		case "AWS_ACCESS_KEY_ID":
			credentials.AccessKeyID = value
		case "AWS_SECRET_ACCESS_KEY":
			credentials.SecretAccessKey = value
		}
	}
	sum := sha256.Sum256([]byte(body))
	if err := v4.NewSigner().SignHTTP(context.Background(), credentials, req, hex.EncodeToString(sum[:]), "iam", "us-east-1", time.Now()); err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", form.Get("Action"), resp.Status)
	}
	return nil
}
