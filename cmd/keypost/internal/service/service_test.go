package service

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Work that cannot be interrupted does not keep the process from ending.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		hanging := make(chan struct{})
		time.AfterFunc(time.Hour, cancel)
		began := time.Now()
		if err := Until(ctx, func() { <-hanging }); err == nil || time.Since(began) != time.Hour+lastWait {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		close(hanging)
		if err := Until(ctx, func() { time.Sleep(lastWait / 2) }); err != nil {
			t.Errorf("work that ends soon: %v", err)
		}
	})
}
