package listen

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// worstRequests are requests after which a connection holds most.
func worstRequests() map[string]string {
	const start = "GET / HTTP/1.1\r\nHost: oidc.example.com\r\n"
	var fields strings.Builder
	for i := range maxFields - 1 { // in 12 KiB, the last of which does not end
		fmt.Fprintf(&fields, "x%d:%s\n", i, strings.Repeat("v", 110))
	}
	whole := start + fields.String()
	return map[string]string{
		"idle":                       start + "\r\n",
		"a header that does not end": whole,
		"an answer that nobody takes, and a next header behind it": whole + "\r\n" + whole,
	}
}

// With the worst request a connection takes what FittingConnections reckons with.
func TestWorstRequest(t *testing.T) {
	const n = 50
	document := strings.Repeat("x", 1<<20)
	s := startSite(t, Config{MaxConnections: 2 * n, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header) > 10 {
			_, _ = io.WriteString(w, document)
		}
	})})
	for name := range worstRequests() {
		live := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc + m.StackInuse
		}
		eventually(t, "those before have gone", func() bool { return gathered(t, s.metrics, "keypost_connections_open") == 0 })
		before := live()
		cmd := exec.Command(os.Args[0], "-test.run=^TestWorstClients$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("KEYPOST_WORST=%s\n%d\n%s", s.address, n, name))
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "all\n" {
			t.Fatal(line, err)
		}
		time.Sleep(200 * time.Millisecond) // until what they have sent has been read
		open, each := gathered(t, s.metrics, "keypost_connections_open"), (live()-before)/n
		t.Logf("%s: %d KiB each, of %v connections", name, each>>10, open)
		if each > inProcess || open != n {
			t.Errorf("%s: %d bytes each, reckoned with %d; %v connections, want %d", name, each, inProcess, open, n)
		}
		_ = stdin.Close() // which ends it
		_ = cmd.Wait()
	}
}

// TestWorstClients is the other side of TestWorstRequest, in a process of its own.
func TestWorstClients(t *testing.T) {
	what := strings.Split(os.Getenv("KEYPOST_WORST"), "\n")
	if len(what) != 3 {
		return // TestWorstRequest runs it; it has nothing to show by itself
	}
	var n int
	_, _ = fmt.Sscan(what[1], &n) // it is a number
	for range n {
		c, err := tls.Dial("tcp", what[0], &tls.Config{InsecureSkipVerify: true, DynamicRecordSizingDisabled: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, worstRequests()[what[2]]); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("all")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
