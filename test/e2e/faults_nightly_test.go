//go:build e2e && e2e_full

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	programs "github.com/keypost/keypost/test/process"
)

// Memory is for a fifth of the connections that want to stay. Needs root for the cgroup.
func TestFaultMemory(t *testing.T) {
	s := newFaultScene(t)
	g := programs.NewGroup(t, 256)
	r := s.replica(t, faultServer{address: "127.0.0.1:443", within: g.Within()})
	v := s.verify(t)
	attack := exec.Command("sh", "-c", `ulimit -n 16384 && exec "$0"`, os.Getenv("KEYPOST_E2E_ATTACK"))
	attack.Env = append(os.Environ(), "KEYPOST_ATTACK=h1-idle 127.0.0.1:443 5000 30s", "GOMAXPROCS=1")
	attack.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	_, err := attack.StdinPipe() // whose end would end it
	must(t, err)
	out, err := attack.Output()
	if err != nil {
		t.Fatalf("the 5,000: %v", err)
	}
	v.row(t, "5,000 connections kept by others, 30 s, in a cgroup of 256 MiB", fmt.Sprintf("%d MiB used at most, %s connections opened", g.Peak(t), strings.TrimSpace(string(out))))
	opened, err := strconv.Atoi(strings.TrimSpace(string(out)))
	metrics := string(get(t, http.DefaultClient, "http://"+r.admin+"/metrics"))
	if evicted := regexp.MustCompile(`(?m)^keypost_connections_evicted_total\{.*\} [1-9]`); err != nil || opened < 5000 || !evicted.MatchString(metrics) {
		t.Errorf("%q connections were opened, want 5,000 and more, and some that had to make room: %v", out, err)
	}
	if total := v.verified + v.failed; v.failed > total/20 { // the 5,000 come back all the time: on a busy machine some wait for longer than 5 s
		t.Errorf("%d of %d failed", v.failed, total)
	}
	if r.Ended() {
		t.Error("keypostd has ended")
	}
	after := s.verify(t)
	time.Sleep(time.Second)
	after.row(t, "once they are gone", "")
	after.none(t)
}

// The disk of the certificate cache is full when a renewal is due: the certificate in use stays, the log says why, and
// the CA is not asked.
func TestFaultCacheFull(t *testing.T) {
	ca := newPebble(t, pebbleOptions{validity: 40 * time.Second})
	cache := t.TempDir()
	must(t, os.Chmod(cache, 0o700))
	smallDisk(t, cache)
	must(t, os.Chmod(cache, 0o700))
	s := newACMEServer(t, "127.0.0.1:443", "127.0.0.1:9090", quoted("cache", cache)+", "+quoted("caFile", ca.ca))
	s.up(t)
	client := ca.relyingParty(t)
	certified(t, client)
	free := fillDisk(t, cache)
	asked, failed := 0, 0
	await(t, "a renewal that fails", func(ctx context.Context) error {
		asked++
		if res, err := client.Do(request(ctx, "https://"+acmeHost+"/none")); err != nil {
			failed++
		} else {
			_ = res.Body.Close()
		}
		if got := s.metric(t, `keypost_tls_order_failing{certificate="`+acmeHost+`"}`); got != "1" {
			return fmt.Errorf("keypost_tls_order_failing is %q", got)
		}
		return nil
	})
	s.says(t, "TLS certificate not ordered", "the CA is not asked", "no space left")
	t.Logf("| disk of the certificate cache full when a renewal is due | %d | %d | | | the certificate in use stays |", asked, failed)
	if failed > 0 {
		t.Errorf("%d of %d failed", failed, asked)
	}
	free()
	s.stop(t, 5*time.Second)
	s.up(t)
	certified(t, client)
}
