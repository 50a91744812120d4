package main

import (
	"net/http/httptest"
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keypost/keypost/test/fakecloudfront"
)

// startCloudFront plays CloudFront's API with one distribution; one of its edges has in a file what it fetched from another one:
// edge ID ORIGIN EDGE
func startCloudFront(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: edge ID ORIGIN EDGE")
	}
	origin, edge := ts.MkAbs(args[1]), ts.MkAbs(args[2])
	server := httptest.NewServer(&fakecloudfront.Server{Distribution: args[0], Looks: 1, Done: func([]string) {
		doc, err := os.ReadFile(origin)
		if err == nil {
			err = os.WriteFile(edge, doc, 0o600)
		}
		if err != nil {
			panic(err)
		}
	}})
	ts.Defer(server.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "x",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
	} {
		ts.Setenv(name, value)
	}
}

// mergeConflict leaves in a file what a merge of two versions leaves there: conflict OURS THEIRS FILE
func mergeConflict(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: conflict OURS THEIRS FILE")
	}
	text := "<<<<<<< HEAD\n" + ts.ReadFile(args[0]) + "=======\n" + ts.ReadFile(args[1]) + ">>>>>>> theirs\n"
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(text), 0o600))
}
