package listen

import (
	"context"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/keypost/keypost/internal/admin"
	"github.com/keypost/keypost/internal/bind"
)

// Limits bounds what clients can hold: time, memory and connections. A field
// that is zero or negative takes the default, so none of them can be switched
// off: a single unbounded wait is a slow-loris door.
type Limits struct {
	// ReadHeader bounds the TLS handshake and the reading of a request's
	// header. Default 5 s, which is also how long AWS STS waits for us.
	ReadHeader time.Duration
	// Read bounds a whole request. Default as ReadHeader: no request that is
	// answered with a document has a body.
	Read time.Duration
	// Write bounds the handler and the response. Default 10 s.
	Write time.Duration
	// Idle bounds a kept-alive connection between requests. Default 90 s:
	// longer than the 60 s after which common load balancers drop theirs, so
	// that they, not we, close the connection a request is about to use.
	Idle time.Duration
	// MaxHeaderBytes bounds a request's header; beyond it the answer is 431.
	// Default 16 KiB.
	MaxHeaderBytes int
	// MaxConnections bounds the open connections of all clients together. When
	// all are taken, slow, idle and stalled ones make room for new ones (see listener).
	// Default 1024. FittingConnections knows how many fit.
	MaxConnections int
}

func (l Limits) withDefaults() Limits {
	orDuration := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	orInt := func(n *int, def int) {
		if *n <= 0 {
			*n = def
		}
	}
	orDuration(&l.ReadHeader, 5*time.Second)
	orDuration(&l.Read, l.ReadHeader)
	orDuration(&l.Write, 10*time.Second)
	orDuration(&l.Idle, 90*time.Second)
	orInt(&l.MaxHeaderBytes, 16<<10)
	orInt(&l.MaxConnections, 1024)
	return l
}

// maxStreams is how many requests one HTTP/2 connection may have open. Each one
// whose client refuses to take the answer holds some 25 KiB for Limits.Write.
// Relying parties send one request at a time; a CDN opens more connections.
const maxStreams = 32

// newServer is the only place where an http.Server is made, so that none lacks
// a bound. l has its defaults filled in.
func newServer(h http.Handler, l Limits, errors *noise) *http.Server {
	srv := &http.Server{
		Handler:                      front(h),
		ConnContext:                  withConn,
		ConnState:                    noteState,
		ReadHeaderTimeout:            l.ReadHeader,
		ReadTimeout:                  l.Read,
		WriteTimeout:                 l.Write,
		IdleTimeout:                  l.Idle,
		MaxHeaderBytes:               l.MaxHeaderBytes,
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
			SendPingTimeout:  l.Idle / 3,
			PingTimeout:      l.Read,
			WriteByteTimeout: l.Write,
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

// front is what every request passes first.
func front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.begin()
			defer c.finish()
			w = answer{w, c}
		}
		// A proxy in front may see the end of a body elsewhere than net/http
		// does; what follows the body would then be answered as if it were
		// another client's request (RFC 9112, section 11.2). Nothing that is
		// served here needs a body.
		if r.ProtoMajor == 1 && (r.ContentLength != 0 || len(r.TransferEncoding) > 0) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
		if f, ok := w.(http.Flusher); ok && r.ProtoMajor == 2 {
			// An HTTP/2 client decides when it takes the answer. Waiting for
			// that here is the only way to know how many answers wait; the
			// header is not needed meanwhile.
			r.Header = nil
			f.Flush()
		}
	})
}

const (
	// inProcess is what the process takes for each connection: an idle one takes
	// 45 KiB, one with a request more for a moment.
	inProcess = 56 << 10
	// inKernel is the most that the kernel holds for a connection: twice of each
	// of the two buffers that are asked for. It adds one packet before it sees that a
	// buffer is full.
	inKernel      = 4*bind.Buffer + onePacket
	onePacket     = 16 << 10
	perConnection = inProcess + inKernel
	// ownMemory is what the process takes without connections.
	ownMemory = 48 << 20
	// ownFiles are kept for the documents, the certificates and the admin
	// listener.
	ownFiles = admin.MaxConnections + 64
	// Whoever gives less memory or fewer files still gets some connections, and
	// nobody needs more than most.
	fewestConnections, mostConnections = 64, 10_000
)

// FittingConnections returns how many connections fit into a memory limit in bytes
// and a limit of open files. The kernel's buffers are reckoned with in full, as if
// every client filled both: with version 2 of cgroups they count as memory of the
// process, and a few thousand clients that do not read fill them at no cost.
func FittingConnections(memory int64, files uint64) int {
	n := min((memory-ownMemory)/perConnection, mostConnections)
	if files < mostConnections+ownFiles {
		n = min(n, int64(files)-ownFiles)
	}
	return int(max(n, fewestConnections))
}
