package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// freeAddress sets a variable to an address on loopback that nobody listens at: address NAME
func freeAddress(ts *testscript.TestScript, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Setenv(args[0], l.Addr().String())
	ts.Check(l.Close())
}

// scrape waits until a page has every pattern: scrape URL PATTERN…. With ! it must have none of them now.
func scrape(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: scrape URL PATTERN…")
	}
	missing, page := "", ""
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		page = get(args[0])
		missing = ""
		for _, pattern := range args[1:] {
			if regexp.MustCompile(`(?m)`+pattern).MatchString(page) == neg {
				missing = pattern
			}
		}
		switch {
		case missing == "" && page != "":
			return
		case neg && page != "", time.Now().After(deadline):
			ts.Fatalf("%q: found %v in:\n%s", missing, neg, page)
		}
	}
}

// get returns the status and the text of a page, or nothing if nobody answers.
func get(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d\n%s", resp.StatusCode, text)
}
