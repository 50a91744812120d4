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
	// read bounds the TLS handshake, and then the reading of a request with its body. 5 s, which is also how long AWS
	// STS waits for us.
	read time.Duration
	// write bounds the handler and the response. 10 s.
	write time.Duration
	// idle bounds a kept-alive connection between requests. 90 s: longer than the 60 s after which common load
	// balancers drop theirs, so that they, not we, close the connection that a request is about to use.
	idle time.Duration
	// header bounds a request's header in bytes; beyond it the answer is 431. 8 KiB, to which net/http adds 4 KiB.
	header int
}

func (l limits) withDefaults() limits {
	l.read = cmp.Or(l.read, 5*time.Second)
	l.write = cmp.Or(l.write, 10*time.Second)
	l.idle = cmp.Or(l.idle, 90*time.Second)
	l.header = cmp.Or(l.header, 8<<10)
	return l
}

const (
	// maxFields is how many header fields a request may have; beyond it the answer is 400. A field of four bytes becomes an entry of
	// a map: without this bound a header of 8 KiB takes a quarter of a megabyte.
	maxFields = 100
	// maxHandshake is how many bytes a TLS handshake may take, the client's certificates included.
	maxHandshake = 16 << 10
	// inProcess is the most that the process takes for a connection: an idle one takes 40 KiB, one with the largest header
	// in the largest record of TLS takes it all (see TestWorstRequest).
	inProcess = 96 << 10
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

// FittingConnections returns how many connections fit into a memory limit in bytes and a limit of open files, beside those of
// other listeners of the process, such as MaxChallengers. Each is reckoned with the worst request there is, and with the
// kernel's buffers in full: with version 2 of cgroups they are memory of the process, and a few thousand clients that do not
// read fill them at no cost.
func FittingConnections(memory int64, files uint64, others uint16) int {
	n := min((memory-ownMemory)/perConnection-int64(others), mostConnections)
	if files < mostConnections+ownFiles+uint64(others) {
		n = min(n, int64(files)-ownFiles-int64(others)) //nolint:gosec // it is small
	}
	return int(max(n, fewestConnections))
}
