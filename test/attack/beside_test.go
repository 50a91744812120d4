//go:build e2e_full

package attack

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/process"
)

// Attacks by programs of others.
const (
	// honestLoad is h2load: many requests, all of them proper.
	honestLoad = "h2load -m 100 --h1"
	// slowHTTP is followed by the letter of its mode.
	slowHTTP    = "slowhttptest -"
	slowHeaders = slowHTTP + "H"
	slowBody    = slowHTTP + "B"
	slowRead    = slowHTTP + "X"
)

// against attacks what start returns for a while.
func against(t *testing.T, sc scenario, lasting time.Duration, start func(*testing.T, scenario) *target) outcome {
	t.Helper()
	v := start(t, sc)
	idle := v.peakResident(t)
	wait := startScenario(t, sc, v.address, lasting)
	time.Sleep(500 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), lasting-500*time.Millisecond)
	defer cancel()
	p := rely(ctx, v)
	o := outcome{party: p, alive: !v.Ended()}
	o.attacked, o.detail = wait()
	if v.group != nil {
		o.peak = v.group.Peak(t)
	}
	if o.alive && v.admin != "" {
		o.attacked = max(o.attacked, int(v.metric(t, `keypost_http_requests_total{code="405"`))) // slowhttptest does not count connections that end at once
		o.resident = int(v.peakResident(t)-idle) >> 20
		o.detail += fmt.Sprintf(" evicted %v", v.metric(t, "keypost_connections_evicted_total"))
	}
	v.Stop(10 * time.Second) // and its workers with it
	return o
}

// startScenario starts an attack that ends by itself; wait returns how many connections it has had, and what it has to say.
func startScenario(t *testing.T, sc scenario, address string, lasting time.Duration) (wait func() (int, string)) {
	t.Helper()
	mode, isSlow := strings.CutPrefix(sc.mode, slowHTTP)
	if !isSlow && !strings.HasPrefix(sc.mode, honestLoad) {
		end := startAttack(t, sc.mode, address, sc.n, lasting)
		return func() (int, string) {
			opened := end()
			return opened, fmt.Sprintf("%d connections opened;", opened)
		}
	}
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	ends := time.Now().Add(lasting)
	ctx, cancel := context.WithDeadline(t.Context(), ends.Add(10*time.Second)) // it may be late where the machine is busy
	done := make(chan struct{})
	said, attacked := "", 0
	go func() {
		defer close(done)
		defer cancel()
		for left := int(lasting.Seconds()) - 1; left > 0; left = int(time.Until(ends).Seconds()) - 1 { // some end early, when their connections are closed
			args := append(strings.Fields(sc.mode), "-c", strconv.Itoa(sc.n), "-t", "1", "-D", strconv.Itoa(left), "--connect-to="+address, "https://"+host+path)
			if isSlow {
				args = []string{"slowhttptest", "-" + mode, "-c", strconv.Itoa(sc.n), "-r", strconv.Itoa(sc.n), "-l", strconv.Itoa(left), "-i", "1", "-p", "5",
					"-w", "8", "-y", "16", "-n", "1", "-z", "8", "-k", "10", "-u", "https://" + net.JoinHostPort(nickname, port) + path}
			}
			cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "10"}, args...)...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			out, _ := cmd.CombinedOutput() // what it says tells more than its code
			text := colours.ReplaceAllString(string(out), "")
			said, attacked = summary(text), max(attacked, connections(text))
			if connections(text) == 0 {
				time.Sleep(100 * time.Millisecond) // it could not connect
			}
		}
	}()
	return func() (int, string) {
		<-done
		return attacked, said
	}
}

var (
	colours = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)
	had     = regexp.MustCompile(`(?m)^(?:connected|closed): +(\d+)|^requests: .* (\d+) succeeded`)
)

// connections is the most connections that slowhttptest says it has had at a time, or had closed, or the requests of h2load that
// were answered.
func connections(output string) (most int) {
	for _, m := range had.FindAllStringSubmatch(output, -1) {
		n, _ := strconv.Atoi(m[1] + m[2])
		most = max(most, n)
	}
	return most
}

// summary is the last of what slowhttptest and h2load say of each thing.
func summary(output string) string {
	last, order := map[string]string{}, []string{}
	for _, line := range regexp.MustCompile(`(?m)^(finished|requests|status codes|connected|error|closed|service available|Exit status):? .*$`).FindAllStringSubmatch(output, -1) {
		if last[line[1]] == "" {
			order = append(order, line[1])
		}
		last[line[1]] = strings.Join(strings.Fields(line[0]), " ")
	}
	said := ""
	for _, what := range order {
		said += last[what] + "; "
	}
	return said
}

const nginxConfig = `daemon off;
worker_processes %d;
worker_rlimit_nofile 16384;
pid %[2]s/pid;
error_log stderr crit;
user root;
events { worker_connections %[3]d; }
http {
	access_log off;
	client_body_temp_path %[2]s/body; proxy_temp_path %[2]s/proxy; fastcgi_temp_path %[2]s/fastcgi; uwsgi_temp_path %[2]s/uwsgi; scgi_temp_path %[2]s/scgi;
	default_type application/json;
	server {
		listen %[4]s ssl;
		ssl_certificate %[2]s/tls.crt; ssl_certificate_key %[2]s/tls.key;
		root %[2]s/html;
		add_header Cache-Control "public, max-age=300, stale-while-revalidate=300, stale-if-error=86400";
		add_header Access-Control-Allow-Origin "*";
		add_header X-Content-Type-Options nosniff;
	}
}
`

// startNginx serves the same bytes with some workers, started by the command within.
func startNginx(t *testing.T, sc scenario, workers int, within []string) *target {
	t.Helper()
	reference := start(t, setup{})
	reference.Stop(10 * time.Second)
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "html", filepath.Dir(path)), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "html", path), []byte(reference.body), 0o600))
	authority.New(t).Issue(t, dir, host)
	address := process.FreeAddress(t)
	connections := 4096
	if sc.slots > 0 {
		workers, connections = 1, sc.slots
	}
	config := filepath.Join(dir, "nginx.conf")
	must(t, os.WriteFile(config, fmt.Appendf(nil, nginxConfig, workers, dir, connections, address), 0o600))
	v := run(t, append(within, "nginx", "-p", dir, "-c", config), nil)
	v.address, v.body = address, reference.body
	v.Await(t, "nginx serves the same bytes", func() error {
		body, err := ask(t.Context(), address)
		if err == nil && body != v.body {
			err = fmt.Errorf("it serves %q", body)
		}
		return err
	})
	return v
}
