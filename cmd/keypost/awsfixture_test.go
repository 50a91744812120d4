package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keypost/keypost/test/fakeaws"
)

// accounts are the AWS accounts that scripts have started, by working directory: a script's commands share one.
type accounts struct{ t testing.TB }

type accountKey struct{}

// start plays an AWS account from here on: fakeaws [PARTITION]. All commands of the script talk to it.
func (a accounts) start(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: fakeaws [PARTITION]")
	}
	o := fakeaws.Options{}
	if len(args) == 1 {
		o.Partition = args[0]
	}
	s := fakeaws.Start(a.t, o)
	for _, kv := range s.Env() {
		name, value, _ := strings.Cut(kv, "=")
		ts.Setenv(name, value)
	}
	ts.Value(accountKey{}).(*fakeAccount).Server = s
}

type fakeAccount struct{ *fakeaws.Server }

func accountOf(ts *testscript.TestScript) *fakeaws.Server {
	s := ts.Value(accountKey{}).(*fakeAccount).Server
	if s == nil {
		ts.Fatalf("fakeaws was not started")
	}
	return s
}

// calls compares the calls since the last time: calls none|reads, or calls ACTION=COUNT…
func calls(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: calls none|reads|ACTION=COUNT…")
	}
	s := accountOf(ts)
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

// printAccount writes what the account holds to a file: account FILE. What differs in every run is left out.
func printAccount(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: account FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(describe(accountOf(ts).State())), 0o600))
}

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
func callIAM(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: iam ACTION NAME=VALUE…")
	}
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
