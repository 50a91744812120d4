package listen

import (
	"cmp"
	"time"

	"github.com/keypost/keypost/internal/admin"
	"github.com/keypost/keypost/internal/bind"
)

// limits bounds what one client can hold. Nobody can switch one off: a single unbounded wait lets a slow-loris attack
// in. Tests shorten them.
type limits struct {
	// readHeader bounds the TLS handshake and the reading of a request's header. 5 s, which is also how long AWS STS
	// waits for us.
	readHeader time.Duration
	// read bounds a whole request with its body, and with HTTP/2 the wait for the answer to a ping. As readHeader: no answer
	// depends on a body.
	read time.Duration
	// write bounds the handler and the response. 10 s.
	write time.Duration
	// idle bounds a kept-alive connection between requests. 90 s: longer than the 60 s after which common load
	// balancers drop theirs, so that they, not we, close the connection that a request is about to use.
	idle time.Duration
	// header bounds a request's header in bytes; beyond it the answer is 431. 16 KiB.
	header int
}

func (l limits) withDefaults() limits {
	l.readHeader = cmp.Or(l.readHeader, 5*time.Second)
	l.read = cmp.Or(l.read, l.readHeader)
	l.write = cmp.Or(l.write, 10*time.Second)
	l.idle = cmp.Or(l.idle, 90*time.Second)
	l.header = cmp.Or(l.header, 16<<10)
	return l
}

const (
	// inProcess is what the process takes for each connection: an idle one takes
	// 45 KiB, one with a request more for a moment.
	inProcess = 56 << 10
	// inKernel is the most that the kernel holds for a connection: twice of each
	// of the two buffers that are asked for. It adds one packet before it sees that a
	// buffer is full, with what it needs itself: 20 KiB on Linux 6.
	inKernel      = 4*bind.Buffer + onePacket
	onePacket     = 24 << 10
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
// and a limit of open files beside those of other listeners of the process, such as MaxChallengers. It counts the kernel's buffers in full, as if every
// client filled both: with version 2 of cgroups they are memory of the process, and
// a few thousand clients that do not read fill them at no cost.
func FittingConnections(memory int64, files uint64, others uint16) int {
	n := min((memory-ownMemory)/perConnection-int64(others), mostConnections)
	if files < mostConnections+ownFiles+uint64(others) {
		n = min(n, int64(files)-ownFiles-int64(others)) //nolint:gosec // it is small
	}
	return int(max(n, fewestConnections))
}
