package listen

import (
	"context"
	"log"
	"net"
	"net/http"

	"github.com/keypost/keypost/issuer/listen/internal/errorlog"
)

// maxStreams is how many requests one HTTP/2 connection may have open. Each of them
// holds some 25 KiB for limits.write if the client does not read the answer.
// Relying parties send one request at a time; a CDN opens more connections.
const maxStreams = 16

// newServer returns a server with every bound set but the one of idle connections. l has its defaults filled in.
//
// An HTTP/2 connection that ends with a request open starts net/http's timer for idle ones again as its last act, and so stays
// in memory for limits.idle: 25 KiB each, of as many as clients open, send a request on and leave. No limit of open connections
// bounds that. So the listener closes idle ones (closeExpired), and net/http has no such timer.
func newServer(h http.Handler, l limits, errors *errorlog.Log) *http.Server {
	srv := &http.Server{
		Handler:                      front(h),
		ConnContext:                  withConn,
		ConnState:                    noteState,
		ReadHeaderTimeout:            l.readHeader,
		ReadTimeout:                  l.read,
		WriteTimeout:                 l.write,
		IdleTimeout:                  -1, // closeExpired does it
		MaxHeaderBytes:               l.header,
		ErrorLog:                     log.New(errors, "", 0),
		DisableGeneralOptionsHandler: true, // "OPTIONS *" is the handler's to refuse
		Protocols:                    new(http.Protocols),
		// The documents are read with bodiless requests: the smallest buffers
		// that RFC 9113 permits suffice (sections 6.5.2 and 6.9.2).
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReadFrameSize:              16 << 10,
			MaxReceiveBufferPerConnection: 64 << 10,
			MaxReceiveBufferPerStream:     16 << 10,
			// A stream's own deadlines do not free a connection whose client
			// has stopped reading; these two do.
			SendPingTimeout:  l.idle / 3,
			PingTimeout:      l.read,
			WriteByteTimeout: l.write,
		},
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(true)
	return srv
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	if c := connOf(c); c != nil {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// front wraps the handler of all requests.
func front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.begin()
			defer c.finish()
			w = answer{w, c}
		}
		// Request smuggling: a proxy in front may see the end of a body elsewhere
		// than net/http does; what follows the body would then be answered as if it
		// were another client's request (RFC 9112, section 11.2). Nothing that is
		// served here needs a body.
		if r.ProtoMajor == 1 && (r.ContentLength != 0 || len(r.TransferEncoding) > 0) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
		if f, ok := w.(http.Flusher); ok && r.ProtoMajor == 2 {
			// An HTTP/2 client decides when it takes the answer. Waiting for
			// that here is the only way to count the answers that wait; what the
			// client has sent is not needed meanwhile.
			r.Header, r.URL, r.RequestURI = nil, nil, ""
			f.Flush()
		}
	})
}
