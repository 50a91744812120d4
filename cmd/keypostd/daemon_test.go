package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// A directory that hangs does not keep the process from ending, and the first error is the one that is told.
func TestWait(t *testing.T) {
	broken := errors.New("the socket is gone")
	for name, tc := range map[string]struct {
		hangs bool
		err   error
		want  string
		took  time.Duration
	}{
		"a clean end":      {false, nil, "", time.Second},
		"an error":         {false, broken, broken.Error(), 0},
		"one hangs":        {true, nil, "has not ended", time.Second + lastWait},
		"an error, a hang": {true, broken, broken.Error(), lastWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				g, rest := errgroup.WithContext(ctx)
				mended := make(chan struct{})
				g.Go(func() error {
					<-rest.Done()
					if tc.hangs {
						<-mended
					}
					return nil
				})
				g.Go(func() error {
					if tc.err == nil {
						time.Sleep(time.Second)
						cancel()
					}
					return tc.err
				})
				began := time.Now()
				err := wait(rest, g)
				if took := time.Since(began); took != tc.took {
					t.Errorf("it took %v, want %v", took, tc.took)
				}
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
				close(mended)
			})
		})
	}
}

// The program takes a memory limit by itself, less than what there is, unless GOMEMLIMIT says otherwise.
func TestAvailable(t *testing.T) {
	n, err := least(memlimit.FromCgroup, memlimit.FromSystem)()
	if err != nil || n < 1<<20 {
		t.Errorf("%d bytes are available, %v", n, err)
	}
}
