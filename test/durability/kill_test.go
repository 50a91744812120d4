package durability

import (
	"bufio"
	"context"
	"errors"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
)

// Writers are killed at any moment. What is stored is whole, and never older than what one of them reported.
func TestKilledWriters(t *testing.T) {
	st, path := prepared(t), buildWriter(t)
	kills := count(t, "KEYPOST_KILLS", 60)
	var reported int64
	halfway, start := 0, time.Now()
	for done := 0; done < kills; {
		batch := min(3, kills-done)
		reported = max(reported, killTogether(t, path, st.Dir(), batch))
		done += batch
		s, _, err := keystore.NewStore(st).Load(t.Context(), name)
		if err != nil {
			t.Fatalf("after %d kills: %v", done, err)
		}
		if s.Generation() < reported {
			t.Fatalf("after %d kills, generation %d is stored and %d was reported", done, s.Generation(), reported)
		}
		if err := storetest.CheckNumbered(s); err != nil {
			t.Fatalf("after %d kills: %v", done, err)
		}
		for _, base := range hidden(t, st.Dir()) {
			if strings.HasSuffix(base, ".tmp") {
				halfway++
			}
		}
	}
	wantUsable(t, st.Dir())
	t.Logf("%d writers killed in %v, at least %d of them between creating and renaming their file; %d generations",
		kills, time.Since(start).Round(time.Millisecond), halfway, reported)
}

// wantUsable fails the test if a killed writer holds anything up, or if the next process that writes does not clean.
func wantUsable(t *testing.T, dir string) {
	t.Helper()
	st, err := filestore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	before := load(t, st).Generation()
	s, err := keystore.Update(t.Context(), keystore.NewStore(st), name, storetest.Numbered)
	if err != nil || s.Generation() != before+1 {
		t.Errorf("Update = generation %d, %v; want %d", s.Generation(), err, before+1)
	}
	if files := hidden(t, st.Dir()); len(files) != 0 {
		t.Errorf("left are %v, want nothing", files)
	}
}

// killTogether starts n writers on one directory, kills each a moment after its first report, and returns the highest
// generation that one of them reported.
func killTogether(t *testing.T, path, dir string, n int) int64 {
	t.Helper()
	last, errs := make([]int64, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { last[i], errs[i] = killLater(t.Context(), path, dir) })
	}
	wg.Wait()
	must(t, errors.Join(errs...))
	var highest int64
	for _, g := range last {
		highest = max(highest, g)
	}
	return highest
}

func killLater(ctx context.Context, path, dir string) (last int64, err error) {
	c := exec.CommandContext(ctx, path, dir, "endless")
	pipe, err := c.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := c.Start(); err != nil {
		return 0, err
	}
	defer c.Wait() //nolint:errcheck // it was killed
	for out, first := bufio.NewScanner(pipe), true; out.Scan(); first = false {
		if last, err = strconv.ParseInt(out.Text(), 10, 64); err != nil {
			return 0, err
		}
		if first {
			time.AfterFunc(rand.N(10*time.Millisecond), func() { _ = c.Process.Kill() })
		}
	}
	return last, nil
}
