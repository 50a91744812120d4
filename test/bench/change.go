package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
)

// outcome is what became of a number of changes.
type outcome struct {
	took []time.Duration // from the call that stores a change until an answer has it
}

// changer changes key sets in a directory that keypostd serves.
type changer struct {
	store  *keystore.Store
	target *target
}

const (
	changeBar = bar(1) // seconds
	changed   = 50     // how many changes are made
)

// changes adds a key to one key set after the other and waits each time until it is served.
func (b *bench) changes(ctx context.Context, s side, dir string) (outcome, error) {
	var o outcome
	store, err := filestore.Open(dir)
	if err != nil {
		return o, err
	}
	c := &changer{store: keystore.NewStore(store), target: newTarget(s.server.address, s.issuers, b.cert.roots)}
	for i := range changed {
		if err := c.one(ctx, c.target.issuer(i+1), &o); err != nil {
			return o, fmt.Errorf("change %s: %w", issuerName(i), err)
		}
	}
	return o, nil
}

// one makes and awaits a change.
func (c *changer) one(ctx context.Context, i int, o *outcome) error {
	key, err := syntheticKey()
	if err != nil {
		return err
	}
	began := time.Now()
	_, err = keystore.Update(ctx, c.store, issuerName(i), func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Add(keystore.Change{At: time.Now(), By: "bench"}, key)
	})
	if err != nil {
		return err
	}
	if err := c.await(ctx, i, key.ID()); err != nil {
		return err
	}
	o.took = append(o.took, time.Since(began))
	return nil
}

// await asks for the JWKS of issuer i until it has the key.
func (c *changer) await(ctx context.Context, i int, id keystore.KeyID) error {
	conn, err := c.target.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // everything has been read
	for in := bufio.NewReader(conn); ; time.Sleep(time.Millisecond) {
		if _, err := fmt.Fprintf(conn, requestLine, issuerName(i), ""); err != nil {
			return err
		}
		body, err := readBody(in)
		if err != nil || bytes.Contains(body, []byte(id)) {
			return err
		}
	}
}

func (r *report) changes(o outcome, issuers int) {
	r.table(fmt.Sprintf("%d changes among %d key sets in a running keypostd", len(o.took), issuers), "", "", "")
	slowest := slices.Max(o.took)
	r.row("stored and served within: median", quantile(o.took, 0.5).Round(time.Millisecond).String(), "")
	r.row("99 of 100", quantile(o.took, 0.99).Round(time.Millisecond).String(), "")
	r.row("slowest", slowest.Round(time.Millisecond).String(), r.verdict(slowest.Seconds(), changeBar, "%.0f s"))
	r.end()
}
