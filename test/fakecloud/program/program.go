// Package program runs the programs that serve fakes, for their own tests: each is its test's program under another name.
package program

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// env makes a test's program the program that it tests.
const env = "KEYPOST_FAKE_RUN"

// Main is for TestMain: it runs the tests, or main in a process that one of them has started.
func Main(m *testing.M, main func()) {
	if os.Getenv(env) != "" {
		main()
		return
	}
	m.Run() // testing exits with its result
}

func command(t testing.TB, arguments []string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), os.Args[0], arguments...) //nolint:gosec // this very program
	c.Env = append(os.Environ(), env+"=1")
	return c
}

// Start runs the program until the test ends. It returns the URL that it prints first, and so many variables that it prints then.
func Start(t testing.TB, variables int, arguments ...string) (url string, environment map[string]string) {
	t.Helper()
	c := command(t, arguments)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.Wait() == nil {
			t.Error("the command ended by itself")
		}
	})
	lines := bufio.NewScanner(out)
	lines.Scan()
	url, environment = lines.Text(), map[string]string{}
	for len(environment) < variables && lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		environment[name] = value
	}
	return url, environment
}

// Refused fails the test unless the program ends with an error of its name, for each of some arguments.
func Refused(t testing.TB, name string, arguments ...[]string) {
	t.Helper()
	for _, a := range arguments {
		if out, err := command(t, a).CombinedOutput(); err == nil || !strings.Contains("\n"+string(out), "\n"+name+": ") {
			t.Errorf("%v: %s %v", a, out, err)
		}
	}
}
