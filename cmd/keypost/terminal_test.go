package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keypost/keypost/test/pty"
)

// TestTerminal shows what a person sees at 80 columns. KEYPOST_UPDATE=1 writes the screens anew.
func TestTerminal(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/terminal",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("KEYPOST_UPDATE") != "",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"terminal": onTerminal, "serve": accounts{t}.serve, "trust": trust, "kids": setKids, "fits": fits, "token": writeToken,
		},
		Setup: func(env *testscript.Env) error {
			env.Values[accountKey{}] = &fakeAccount{}
			env.Setenv("KEYPOST_STORE", "file://./store")
			env.Setenv("TERM", "xterm")
			env.Setenv("NO_COLOR", "1")
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
	})
}

// Times pass; their width stays.
var (
	hour = regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d\d:\d\d`)
	date = regexp.MustCompile(`20\d\d-\d\d-\d\d \d\d:\d\d`)
)

// onTerminal runs a command with a terminal of 80 columns, and writes what it shows to a file: terminal FILE keypost ARG…
func onTerminal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: terminal FILE COMMAND ARG…")
	}
	master, slave, err := pty.Open(80)
	ts.Check(err)
	defer func() { _ = master.Close() }()
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), nil, slave, slave
	for _, name := range []string{"PATH", "HOME", "TERM", "NO_COLOR", "KEYPOST_STORE", "KEYPOST_OBSERVATIONS", "SSL_CERT_FILE", "GORACE", "TMPDIR"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	var screen bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = screen.ReadFrom(master) // it ends with EIO, when nobody has the other end
	}()
	code := 0
	if err := cmd.Run(); err != nil {
		code = cmd.ProcessState.ExitCode()
	}
	_ = slave.Close()
	<-read
	shown := strings.ReplaceAll(screen.String(), "\r\n", "\n")
	shown = date.ReplaceAllString(hour.ReplaceAllString(shown, "Day 00:00"), "2000-01-01 00:00")
	if port := ts.Getenv("PORT"); port != "" {
		shown = strings.ReplaceAll(shown, port, strings.Repeat("9", len(port)))
	}
	shown += "exit code " + strconv.Itoa(code) + "\n"
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(shown), 0o600))
}

// fits proves that no line of files is wider than 80 columns, but by one word that is too long for its column: fits FILE…
func fits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: fits FILE…")
	}
	for _, name := range args {
		for n, line := range strings.Split(ts.ReadFile(name), "\n") {
			cells := strings.Split(strings.TrimSuffix(line, ` \`), "  ")
			if last := cells[len(cells)-1]; runewidth.StringWidth(line) > 80 && strings.Contains(strings.TrimSpace(last), " ") && !strings.Contains(last, "'") {
				ts.Fatalf("%s:%d is %d columns wide: %s", name, n+1, runewidth.StringWidth(line), line)
			}
		}
	}
}
