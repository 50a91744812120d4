package listen

import (
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	// MaxConnections bounds the open connections of all clients together.
	// Further ones wait in the kernel's queue until one is closed; the times
	// above see to it that one is. An idle one takes about 40 KiB.
	// Default 4096.
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
	orInt(&l.MaxConnections, 4096)
	return l
}

// newServer is the only place where an http.Server is made, so that none lacks
// a bound. l has its defaults filled in.
func newServer(h http.Handler, l Limits, errors *noise) *http.Server {
	srv := &http.Server{
		Handler:                      h,
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
			MaxConcurrentStreams:          100,
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

// bind opens a TCP listener that holds at most limit connections. The kernel's
// keep-alive probes are on, as the net package sets them.
func bind(address string, limit int) (*limitedListener, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	l := &limitedListener{
		TCPListener: ln.(*net.TCPListener),
		slots:       make(chan struct{}, limit),
		closed:      make(chan struct{}),
		deadlines:   newDeadlines(),
	}
	go l.deadlines.watch(l.closed)
	return l, nil
}

// limitedListener is x/net/netutil's LimitListener with two differences: it
// counts, and its connections stay TCP connections, of which net/http closes
// only the write half after refusing a request (otherwise the reset that follows
// could overtake the 431 or 400).
type limitedListener struct {
	*net.TCPListener
	slots     chan struct{} // one per connection, and one for the Accept under way
	open      atomic.Int64
	close     sync.Once
	closed    chan struct{}
	deadlines *deadlines
}

// Accept waits for a free slot first, so that a connection beyond the limit
// costs this process nothing.
func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.AcceptTCP()
	if err != nil {
		<-l.slots
		return nil, err
	}
	l.open.Add(1)
	lc := &limitedConn{TCPConn: c, of: l, read: deadline{tell: c.SetReadDeadline}, write: deadline{tell: c.SetWriteDeadline}}
	l.deadlines.add(lc)
	return lc, nil
}

// Close closes the socket; connections that were accepted live on.
func (l *limitedListener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.TCPListener.Close()
}

func (l *limitedListener) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keypost_connections_open",
			Help: "Connections of the public listener that are open.",
		}, func() float64 { return float64(l.open.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "keypost_connections_max",
			Help: "Open connections beyond which further ones wait in the kernel's queue.",
		}, func() float64 { return float64(cap(l.slots)) }),
	}
}

type limitedConn struct {
	*net.TCPConn
	of     *limitedListener
	closed atomic.Bool

	read, write deadline
}

// Close gives the slot back, once: net/http may close a connection repeatedly.
func (c *limitedConn) Close() error {
	err := c.TCPConn.Close()
	if c.closed.CompareAndSwap(false, true) {
		c.of.deadlines.remove(c)
		c.of.open.Add(-1)
		<-c.of.slots
	}
	return err
}
