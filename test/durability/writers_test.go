package durability

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"github.com/keypost/keypost/keystore/storetest"
)

// Several processes update one key set at once: every update is there in the end.
func TestWritersInManyProcesses(t *testing.T) {
	const processes = 4
	updates := count(t, "KEYPOST_UPDATES", 25)
	st, path := prepared(t), buildWriter(t)
	var running []*exec.Cmd
	for p := range processes {
		c := exec.CommandContext(t.Context(), path, st.Dir(), fmt.Sprintf("w%d", p), strconv.Itoa(updates))
		c.Stderr = os.Stderr
		must(t, c.Start())
		running = append(running, c)
	}
	for _, c := range running {
		if err := c.Wait(); err != nil {
			t.Errorf("a writer failed: %v", err)
		}
	}
	s := load(t, st)
	if want := int64(1 + processes*updates); s.Generation() != want {
		t.Errorf("the generation is %d, want %d", s.Generation(), want)
	}
	marks := storetest.Marks(s)
	if len(marks) != processes*updates {
		t.Errorf("%d marks are stored, want %d", len(marks), processes*updates)
	}
	for p := range processes {
		for i := range updates {
			if !slices.Contains(marks, fmt.Sprintf("w%d-%d", p, i)) {
				t.Errorf("update %d of process %d was lost", i, p)
			}
		}
	}
}
