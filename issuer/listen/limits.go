package listen

import (
	"time"

	"github.com/keypost/keypost/internal/admin"
	"github.com/keypost/keypost/internal/bind"
)

// Limits bounds what clients can hold: time, memory and connections. A field
// that is zero or negative takes the default, so that none of them can be switched
// off: a single unbounded wait lets a slow-loris attack in.
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
	// Required: FittingConnections returns how many fit.
	MaxConnections int
}

func (l Limits) withDefaults() Limits {
	orDuration := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	orDuration(&l.ReadHeader, 5*time.Second)
	orDuration(&l.Read, l.ReadHeader)
	orDuration(&l.Write, 10*time.Second)
	orDuration(&l.Idle, 90*time.Second)
	if l.MaxHeaderBytes <= 0 {
		l.MaxHeaderBytes = 16 << 10
	}
	return l
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
	// Less memory or fewer files still get fewestConnections, and nobody needs more
	// than mostConnections.
	fewestConnections, mostConnections = 64, 10_000
)

// FittingConnections returns how many connections fit into a memory limit in bytes
// and a limit of open files. It counts the kernel's buffers in full, as if every
// client filled both: with version 2 of cgroups they are memory of the process, and
// a few thousand clients that do not read fill them at no cost.
func FittingConnections(memory int64, files uint64) int {
	n := min((memory-ownMemory)/perConnection, mostConnections)
	if files < mostConnections+ownFiles {
		n = min(n, int64(files)-ownFiles)
	}
	return int(max(n, fewestConnections))
}
