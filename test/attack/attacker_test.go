package attack

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// host is what all servers under attack are called.
const host = "oidc.example.com"

// nickname is another name of theirs, for attackers that go where a name leads.
const nickname = "localhost"

// path is a document that they serve.
const path = "/prod-a/keys.json"

// modes are the attacks. Each one works on a connection of its own until ctx is done or the connection fails; then it
// gets a new one.
var modes = map[string]func(ctx context.Context, address string) error{
	"tcp-idle":        silent,
	"h1-idle":         http1Idle,
	"h1-busy":         http1Busy,
	"h1-slow-header":  http1SlowHeader,
	"h1-header-bomb":  http1Header(many(16 << 10)),
	"h1-small-bomb":   http1Header(many(5 << 10)),
	"h1-large-header": http1Header(large()),
	"h1-pipeline":     http1Pipeline,
	"h1-stall":        http1Stall,
	"h1-slow-body":    http1SlowBody,
	"h1-drip":         http1Drip,
	"tls-handshakes":  handshakes("http/1.1"),
	"h2-offers":       handshakes("h2"), // and nothing else, which a server without HTTP/2 refuses
}

// attack runs a mode on n connections until ctx is done and returns how many the server, or its kernel, has accepted.
func attack(ctx context.Context, mode, address string, n int) int64 {
	var opened atomic.Int64
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				err := modes[mode](ctx, address) // the server may do what it wants
				if refused := (*net.OpError)(nil); !errors.As(err, &refused) || refused.Op != "dial" {
					opened.Add(1)
				}
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

// handshakes makes one handshake after the other. One that is refused has attacked too.
func handshakes(protocol string) func(ctx context.Context, address string) error {
	return func(ctx context.Context, address string) error {
		for n := 0; ; n++ {
			c, err := dialTLS(ctx, address, protocol)
			if refused := (*net.OpError)(nil); errors.As(err, &refused) && refused.Op == "dial" {
				if n > 0 {
					return nil // it has attacked
				}
				return err
			}
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				_ = c.Close()
			}
		}
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

// http1Busy asks for next to nothing, and so often that its connection is never idle for long.
func http1Busy(ctx context.Context, address string) error {
	return http1(ctx, address, func(c net.Conn) error {
		answer := make([]byte, 4096)
		for {
			if _, err := io.WriteString(c, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
				return err
			}
			if _, err := c.Read(answer); err != nil {
				return err
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
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

// many is a header of as many fields as fit into some bytes, without its end.
func many(size int) string {
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(get, "\r\n"))
	const letters = "abcdefghijklmnopqrstuvwxyz"
	for i := 0; b.Len() < size; i++ {
		b.Write([]byte{letters[i%26], letters[i/26%26], letters[i/676%26], ':', '\n'})
	}
	return b.String()
}

// large is a header with nearly all bytes and fields that keypostd takes, without its end.
func large() string {
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(get, "\r\n"))
	for i := range 98 {
		fmt.Fprintf(&b, "x%d: %s\r\n", i, strings.Repeat("v", 70))
	}
	return b.String()
}

func http1Header(text string) func(ctx context.Context, address string) error {
	return func(ctx context.Context, address string) error {
		return http1(ctx, address, func(c net.Conn) error {
			if _, err := io.WriteString(c, text); err != nil {
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

// http1Drip always has requests outstanding, whose answers it takes at 2 KiB/s.
func http1Drip(ctx context.Context, address string) error {
	return http1(ctx, address, func(c net.Conn) error {
		if err := c.(*tls.Conn).NetConn().(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			return err
		}
		ended := make(chan struct{})
		defer func() { _ = c.Close(); <-ended }()
		go func() {
			defer close(ended)
			for { // it blocks for as long as the answers are not taken
				if _, err := io.WriteString(c, strings.Repeat(get, 100)); err != nil {
					return
				}
			}
		}()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(500 * time.Millisecond):
			}
			if _, err := io.CopyN(io.Discard, c, 1<<10); err != nil {
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
