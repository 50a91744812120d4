package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/keypost/keypost/test/bench/floor"
)

// record fetches the JWKS of all issuers of a side.
func (b *bench) record(ctx context.Context, s side) (*floor.Recording, error) {
	t := newTarget(s.server.address, s.issuers, b.cert.roots)
	rec := new(floor.Recording)
	var mu sync.Mutex
	err := burst{0, s.issuers}.spread(func(_ int, share []int) error {
		return t.fetch(ctx, share, func(i int, e exchange) error {
			mu.Lock()
			defer mu.Unlock()
			return rec.Add(t.path(i), e.header, e.body)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("record what %s answers: %w", s.label, err)
	}
	return rec, nil
}

// fetch sends requests over one connection and hands each answer to take.
func (t *target) fetch(ctx context.Context, requests []int, take func(i int, e exchange) error) error {
	c, err := t.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // everything has been read
	in := bufio.NewReader(c)
	for _, i := range requests {
		if err := c.SetDeadline(time.Now().Add(loadTimeout)); err != nil {
			return err
		}
		if _, err := c.Write(t.request(i, "")); err != nil {
			return err
		}
		e, err := readExchange(in)
		if err != nil {
			return err
		}
		if err := take(i, e); err != nil {
			return err
		}
	}
	return nil
}

func readExchange(in *bufio.Reader) (exchange, error) {
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		return exchange{}, err
	}
	defer r.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s", r.Status)
	}
	return exchange{header: r.Header, body: body}, err
}

// sampled is how many answers of each server are compared with the recording.
const sampled = 64

// check makes sure that a server answers as recorded.
func (b *bench) check(ctx context.Context, s side, rec *floor.Recording) error {
	t := newTarget(s.server.address, s.issuers, b.cert.roots)
	all := burst{0, min(s.issuers, sampled)}
	err := all.spread(func(_ int, share []int) error {
		return t.fetch(ctx, share, func(i int, e exchange) error {
			header, body := rec.Answer(t.path(i))
			if err := sameAnswer(e, exchange{header: header, body: body}); err != nil {
				return fmt.Errorf("%s: %w", t.path(i), errors.Join(errOtherAnswer, err))
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("%s: %w", s.label, err)
	}
	return nil
}

var errOtherAnswer = errors.New("it answers otherwise than keypostd")

func (b *bench) recordingFile(n int) string {
	return filepath.Join(b.dir, fmt.Sprintf("recording-%d", n))
}
