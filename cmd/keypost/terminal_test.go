package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
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
	all := scripts(t, filepath.Join("testdata", "terminal"))
	all.UpdateScripts = os.Getenv("KEYPOST_UPDATE") != ""
	all.Cmds["terminal"], all.Cmds["fits"] = word(2, many, "FILE COMMAND ARG…", onTerminal), word(1, many, "FILE…", fits)
	prepare := all.Setup
	all.Setup = func(env *testscript.Env) error {
		env.Setenv("TERM", "xterm")
		env.Setenv("NO_COLOR", "1")
		return prepare(env)
	}
	testscript.Run(t, all)
}

// Times pass; their width stays.
var (
	hour = regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d\d:\d\d`)
	date = regexp.MustCompile(`20\d\d-\d\d-\d\d \d\d:\d\d`)
)

// onTerminal runs a command with a terminal of 80 columns, and writes what it shows to a file: terminal FILE keypost ARG…
func onTerminal(ts *testscript.TestScript, args []string) {
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
func fits(ts *testscript.TestScript, args []string) {
	for _, name := range args {
		for n, line := range strings.Split(ts.ReadFile(name), "\n") {
			cells := strings.Split(strings.TrimSuffix(line, ` \`), "  ")
			if last := cells[len(cells)-1]; runewidth.StringWidth(line) > 80 && strings.Contains(strings.TrimSpace(last), " ") && !strings.Contains(last, "'") {
				ts.Fatalf("%s:%d is %d columns wide: %s", name, n+1, runewidth.StringWidth(line), line)
			}
		}
	}
}
