package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// connections is how many clients ask at the same time.
const connections = 16

// loadTimeout ends a burst that hangs.
const loadTimeout = time.Minute

// target is a server and the issuers to ask it for.
type target struct {
	address string
	issuers int
	tls     *tls.Config
}

func newTarget(address string, issuers int, roots *x509.CertPool) *target {
	return &target{address, issuers, &tls.Config{
		RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		// Without a session cache every handshake is a full one. X25519 is what all the servers have.
		CurvePreferences: []tls.CurveID{tls.X25519},
	}}
}

// issuer spreads requests over all issuers in an order that no cache foresees.
func (t *target) issuer(i int) int {
	const prime = 7919 // divides none of the numbers of issuers, so that all get their turn
	return i * prime % t.issuers
}

const requestLine = "GET /%s/keys.json HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: bench\r\nAccept: */*\r\n%s\r\n"

func (t *target) request(i int, header string) []byte {
	return fmt.Appendf(nil, requestLine, issuerName(t.issuer(i)), header)
}

func (t *target) dial(ctx context.Context) (*tls.Conn, error) {
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: loadTimeout}, Config: t.tls}
	c, err := d.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, err
	}
	return c.(*tls.Conn), c.SetDeadline(time.Now().Add(loadTimeout))
}

// size sends one request over a connection of its own, and returns how many bytes the answer takes.
func (t *target) size(ctx context.Context, request []byte) (int, error) {
	c, err := t.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close() //nolint:errcheck // everything has been read
	if _, err := c.Write(request); err != nil {
		return 0, err
	}
	var raw bytes.Buffer
	_, err = readBody(bufio.NewReader(io.TeeReader(c, &raw)))
	return raw.Len(), err
}

// readBody reads an answer that has to be 200.
func readBody(in *bufio.Reader) ([]byte, error) {
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s", r.Status)
	}
	return body, err
}

// load sends the requests of a burst and waits for the answers.
type load interface {
	burst(context.Context, burst) error
}

// burst is some of the requests of a run: from up to, but without, to. The next burst goes on where it ends, so that
// in the end every issuer is asked for, and each time one that no cache has any more.
type burst struct{ from, to int }

// spread runs a burst on the connections, each of which has its share.
func (b burst) spread(each func(worker int, share []int) error) error {
	var g errgroup.Group
	for w := range connections {
		var share []int
		for i := b.from + w; i < b.to; i += connections {
			share = append(share, i)
		}
		g.Go(func() error { return each(w, share) })
	}
	return g.Wait()
}

// readAnswer reads a response of the known size: the load must cost little beside the server. Its first bytes tell
// whether it is what it should be.
func readAnswer(r io.Reader, buf []byte) error {
	if _, err := io.ReadFull(r, buf); err != nil {
		return err
	}
	if !bytes.HasPrefix(buf, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("it answers %q", buf[:min(len(buf), 32)])
	}
	return nil
}

// keepAlive sends all requests over connections that stay open from one burst to the next.
type keepAlive struct {
	*target
	size  int
	conns [connections]*tls.Conn
}

func newKeepAlive(ctx context.Context, t *target, size int) (load, error) {
	k := &keepAlive{target: t, size: size}
	for i := range k.conns {
		var err error
		if k.conns[i], err = t.dial(ctx); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *keepAlive) burst(_ context.Context, b burst) error {
	return b.spread(func(worker int, share []int) error {
		c, buf := k.conns[worker], make([]byte, k.size)
		if err := c.SetDeadline(time.Now().Add(loadTimeout)); err != nil {
			return err
		}
		for _, i := range share {
			if _, err := c.Write(k.request(i, "")); err != nil {
				return err
			}
			if err := readAnswer(c, buf); err != nil {
				return err
			}
		}
		return nil
	})
}

// fresh makes a connection with a full TLS handshake for each request.
type fresh struct {
	*target
	size int
}

const closing = "Connection: close\r\n"

func newFresh(_ context.Context, t *target, size int) (load, error) { return &fresh{t, size}, nil }

func (f *fresh) burst(ctx context.Context, b burst) error {
	return b.spread(func(_ int, share []int) error {
		buf := make([]byte, f.size)
		for _, i := range share {
			if err := f.once(ctx, i, buf); err != nil {
				return err
			}
		}
		return nil
	})
}

// once waits for the server's end of the connection, so that the whole of its life is in the account.
func (f *fresh) once(ctx context.Context, i int, buf []byte) error {
	c, err := f.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // everything has been read
	if _, err := c.Write(f.request(i, closing)); err != nil {
		return err
	}
	if err := readAnswer(c, buf); err != nil {
		return err
	}
	if n, err := c.Read(buf); !errors.Is(err, io.EOF) {
		return fmt.Errorf("after the answer came %d bytes, %w", n, err)
	}
	return nil
}
