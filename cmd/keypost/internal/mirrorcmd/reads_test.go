package mirrorcmd

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/service"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/replicate"
	"github.com/keypost/keypost/keystore/storetest"
)

// farAway is a store that takes its time for each document.
type farAway struct{ keystore.Backend }

func (f farAway) Get(ctx context.Context, n keystore.Name) ([]byte, keystore.Revision, error) {
	time.Sleep(1500 * time.Millisecond)
	return f.Backend.Get(ctx, n)
}

// A first copy that takes long says how far it is, with the total; and nothing once it is whole.
func TestFirstCopyIsSaid(t *testing.T) {
	from, err := filestore.Create(t.TempDir())
	must(t, err)
	for i := range 200 {
		must(t, keystore.Create(t.Context(), keystore.NewStore(from), storetest.KeySet(t, keystore.Name(fmt.Sprintf("set-%d", i)))))
	}
	to, err := filestore.Create(t.TempDir())
	must(t, err)
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		logger := service.NewLogger(&log)
		r := &reads{Backend: farAway{from}}
		m := replicate.NewMirror(replicate.MirrorConfig{From: r.source(), To: to, Poll: time.Second, Log: logger})
		must(t, m.ReadCopy(t.Context()))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.say(t.Context(), logger, func() bool { return !m.Status().Partial })
		}()
		must(t, m.Pass(t.Context()))
		<-ended
		if lines := strings.Count(log.String(), `"msg":"copying"`); lines == 0 || !strings.Contains(log.String(), `"listed":200`) {
			t.Errorf("%d lines in\n%s", lines, log.String())
		}
	})
}

// A store that reports changes goes on doing so.
func TestReadsAreWatched(t *testing.T) {
	watched, err := filestore.Create(t.TempDir())
	must(t, err)
	if _, is := (&reads{Backend: watched}).source().(keystore.Watcher); !is {
		t.Error("a directory is not watched any more")
	}
	if _, is := (&reads{Backend: farAway{watched}}).source().(keystore.Watcher); is {
		t.Error("what cannot be watched is")
	}
}
