package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
)

// Bounds of [RunHanging], in real time: what callers wait, and how soon after that a method must have returned.
const (
	hangingPatience = 100 * time.Millisecond
	hangingGrace    = 5 * time.Second
)

// RunHanging holds a backend whose medium never answers to the contract of [keystore.Backend]: once its context is done, a method
// returns, with the context's error.
func RunHanging(t *testing.T, newHanging func(t *testing.T) keystore.Backend) {
	doc := []byte(Text(t, KeySet(t, "a")))
	for method, call := range map[string]func(context.Context, keystore.Backend) error{
		"List": func(ctx context.Context, b keystore.Backend) error { _, err := b.List(ctx); return err },
		"Get":  func(ctx context.Context, b keystore.Backend) error { _, _, err := b.Get(ctx, "a"); return err },
		"Put":  func(ctx context.Context, b keystore.Backend) error { _, err := b.Put(ctx, "a", "r1", doc); return err },
		"Watch": func(ctx context.Context, b keystore.Backend) error {
			w, ok := b.(keystore.Watcher)
			if !ok {
				return context.DeadlineExceeded
			}
			return w.Watch(ctx, func(...keystore.Name) {})
		},
	} {
		t.Run(method, func(t *testing.T) {
			b := newHanging(t)
			ctx, cancel := context.WithTimeout(t.Context(), hangingPatience)
			defer cancel()
			returned := make(chan error, 1)
			go func() { returned <- call(ctx, b) }()
			select {
			case err := <-returned:
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, want %v", err, context.DeadlineExceeded)
				}
			case <-time.After(hangingPatience + hangingGrace):
				t.Error("it has not returned after its context was done")
			}
		})
	}
}
