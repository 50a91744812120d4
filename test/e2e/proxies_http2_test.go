//go:build e2e

package e2e

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// framedRequest is a request of HTTP/2 that a client sends as it is. The placeholders are those of [rawRequest].
type framedRequest struct {
	name   string
	may    string
	fields []string // "NAME = VALUE"
	body   string   // in a DATA frame; none where it is empty
}

// pseudo returns the four pseudo fields of a request for A's keys, with some of them replaced ("NAME VALUE") or left out ("NAME").
func pseudo(replaced ...string) []string {
	all := []string{":method = GET", ":scheme = https", ":authority = {A}", ":path = {a}/keys.json"}
	for _, r := range replaced {
		name, _, has := strings.Cut(r, " = ")
		for i, f := range all {
			if strings.HasPrefix(f, name+" = ") {
				all[i] = r
				if !has {
					all = append(all[:i], all[i+1:]...)
				}
				break
			}
		}
	}
	return all
}

func framedRequests() []framedRequest {
	r := func(name, may string, fields ...string) framedRequest {
		return framedRequest{name: name, may: may, fields: fields}
	}
	plus := func(name, may string, more ...string) framedRequest {
		return r(name, may, append(pseudo(), more...)...)
	}
	body := func(f framedRequest, text string) framedRequest {
		f.body = text
		return f
	}
	return []framedRequest{
		plus("GET", "A"),
		r("no authority, but host", "A", append(pseudo(":authority"), "host = {A}")...),
		r("neither authority nor host", "", pseudo(":authority")...),
		plus("authority and another host", "A", "host = {B}"), // RFC 9113, section 8.3.1: host is ignored or the request refused
		plus("authority and the same host", "A", "host = {A}"),
		plus("two hosts beside authority", "A", "host = {A}", "host = {B}"),
		r("an empty authority and host", "A", append(pseudo(":authority = "), "host = {A}")...),
		r("authority with userinfo", "!A", pseudo(":authority = {B}@{A}")...),
		r("authority with a port", "A", pseudo(":authority = {A}:443")...),
		r("authority with a path", "!A", pseudo(":authority = {A}/{b}")...),
		r("authority in upper case", "A", pseudo(":authority = {A^}")...),
		plus("authority twice", "", ":authority = {B}"),
		plus("path twice", "", ":path = {b}/keys.json"),
		plus("method twice", "!A", ":method = GET"),
		r("no path", "", pseudo(":path")...),
		r("an empty path", "", pseudo(":path = ")...),
		r("path *", "", pseudo(":path = *")...),
		r("a path without a slash", "!A", pseudo(":path = keys.json")...),
		r("a path in absolute form", "!A|B", pseudo(":path = https://{B}{b}/keys.json")...),
		r("a path with a space and a version", "", pseudo(":path = {a}/keys.json HTTP/1.1")...),
		r("a path with a line end", "", pseudo(":path = {a}/keys.json HTTP/1.1\r\nHost: {B}\r\n\r\nGET {b}/keys.json")...),
		r("a path with a NUL", "", pseudo(":path = {a}/keys.json\x00")...),
		r("a path with dot segments", "A", pseudo(":path = {a}/x/../keys.json")...),
		r("a path with a backslash", "", pseudo(":path = {a}\\keys.json")...),
		r("no method", "", pseudo(":method")...),
		r("a method with a line", "", pseudo(":method = GET {b}/keys.json HTTP/1.1\r\nHost: {B}\r\n\r\nGET")...),
		r("a method with a space", "", pseudo(":method = GET {b}/keys.json")...),
		r("no scheme", "!A", pseudo(":scheme")...),
		r("scheme http", "A", pseudo(":scheme = http")...),
		r("a scheme with a host", "!A", pseudo(":scheme = https://{B}{b}/keys.json?")...),
		plus("an unknown pseudo field", "!A", ":x = y"),
		plus("a pseudo field of answers", "", ":status = 200"),
		r("a pseudo field after others", "!A", append(append([]string{}, pseudo(":path")...), "x-a = b", ":path = {a}/keys.json")...),
		plus("a name in upper case", "", "X-A = b"),
		plus("a name with a line end", "", "x-a: b\r\nhost: {B}\r\nx-b = c"),
		plus("a name beyond ASCII", "!A", "x\u00a0a = b"),
		plus("a value with a line end", "", "x-a = b\r\nHost: {B}"),
		plus("a value with a request", "", "x-a = b\r\n\r\nGET {b}/keys.json HTTP/1.1\r\nHost: {B}\r\n\r\n"),
		plus("a value with LF", "", "x-a = b\nhost: {B}"),
		plus("a value with a NUL", "", "x-a = b\x00c"),
		plus("Connection", "!A", "connection = close"),
		plus("Connection names host", "!A", "connection = host"),
		plus("Transfer-Encoding without a body", "!A", "transfer-encoding = chunked"),
		body(plus("H2.TE", "!A", "transfer-encoding = chunked"), "0\r\n\r\n"+getB),
		body(plus("H2.CL, a length of 0", "!A", "content-length = 0"), getB),
		body(plus("H2.CL, a length too small", "!A", "content-length = 3"), "abc"+getB),
		body(plus("H2.CL, a length too large", "!A", "content-length = 500"), "abc"),
		body(plus("two lengths", "!A", "content-length = 3", "content-length = 0"), "abc"),
		body(plus("a body without a length", "A"), getB),
		plus("a length without a body", "!A", "content-length = 3"),
		plus("te gzip", "!A", "te = gzip"),
		plus("te trailers", "A", "te = trailers"),
		plus("upgrade", "!A", "upgrade = h2c"),
		plus("x-forwarded-host", "A", "x-forwarded-host = {B}", "x-original-url = {b}/keys.json"),
		plus("cookie crumbs", "A", "cookie = a=b", "cookie = c=d"),
		plus("method override", "A", "x-http-method-override = DELETE"),
		r("HEAD", "", pseudo(":method = HEAD")...),
		r("POST", "", append(pseudo(":method = POST"), "content-length = 0")...),
		r("CONNECT with path and scheme", "", pseudo(":method = CONNECT")...),
		r("CONNECT", "", ":method = CONNECT", ":authority = {B}:443"),
		r("PRI", "", pseudo(":method = PRI", ":path = *")...),
	}
}

// errNoHTTP2 means that a server does not speak HTTP/2.
var errNoHTTP2 = errors.New("no HTTP/2")

// ask sends the request on a connection of its own and returns what the answer is, in a few words, and its body.
func (r framedRequest) ask(p front, roots *tls.Config, fill func(string) string) (answer string, bodies []string, err error) {
	c, err := p.dial(roots, fill("{A}"), "h2")
	if err != nil {
		return "", nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(silence)); err != nil {
		return "", nil, err
	}
	if t, ok := c.(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol != "h2" {
		return "", nil, errNoHTTP2
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range r.fields {
		name, value, _ := strings.Cut(f, " = ")
		if err := enc.WriteField(hpack.HeaderField{Name: fill(name), Value: fill(value)}); err != nil {
			return "", nil, err
		}
	}
	f := http2.NewFramer(c, c)
	f.AllowIllegalWrites = true
	if _, err = io.WriteString(c, http2.ClientPreface); err == nil {
		err = f.WriteSettings()
	}
	if err == nil {
		err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: r.body == "", EndHeaders: true})
	}
	if err == nil && r.body != "" {
		err = f.WriteData(1, true, []byte(fill(r.body)))
	}
	if err != nil {
		return "refused", nil, nil //nolint:nilerr // the server has closed the connection, which is an answer
	}
	return readFrames(f)
}

// readFrames reads until the stream or the connection has ended. All ways in which a server refuses a request are one:
// which of them it is depends on what arrives first.
func readFrames(f *http2.Framer) (answer string, bodies []string, err error) {
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	status, body := "", ""
	for {
		frame, err := f.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return "silent", nil, nil
		}
		if err != nil {
			return "refused", nil, nil //nolint:nilerr // closed, which is an answer
		}
		ended := false
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck() // an error shows in the next read
			}
		case *http2.MetaHeadersFrame:
			status, ended = frame.PseudoValue("status"), frame.StreamEnded()
		case *http2.DataFrame:
			body, ended = body+string(frame.Data()), frame.StreamEnded()
		case *http2.RSTStreamFrame:
			if status == "" {
				return "refused", nil, nil
			}
			ended = true
		case *http2.GoAwayFrame:
			if status == "" && frame.ErrCode != http2.ErrCodeNo {
				return "refused", nil, nil
			}
		}
		if ended {
			return status, []string{body}, nil
		}
	}
}
