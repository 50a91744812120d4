package replicate

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/durable"
	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/keystore"
)

// HeartbeatFile is what a mirror keeps beside the copies. Stores in a directory ignore names that begin with a dot.
const HeartbeatFile = ".keypost-mirror.json"

// maxHeartbeat bounds its size, in bytes: somebody else may have put something in its place.
const maxHeartbeat = 64 << 10

// Heartbeat names the store that a directory is a copy of, and the time of the copy. It is a file, since a mirror that has
// died cannot report itself.
type Heartbeat struct {
	Complete time.Time `json:"complete"` // when the last complete pass began
	Store    string    `json:"store"`    // the source: its place in full
	KeySets  int       `json:"keySets"`  // key sets with a good version in the directory
	Refused  int       `json:"refused"`  // key sets whose version in the store is not the one in the directory

	Reasons map[keystore.Name]keystore.Reason `json:"reasons,omitempty"` // why, of the first maxReasons of them
}

// maxReasons keeps a heartbeat below maxHeartbeat.
const maxReasons = 500

// ReadHeartbeat reads the heartbeat in a directory. It never blocks. The error wraps [fs.ErrNotExist] if no mirror has
// written one.
func ReadHeartbeat(dir string) (Heartbeat, error) {
	return parseHeartbeat(regular.Read(filepath.Join(dir, HeartbeatFile), maxHeartbeat))
}

func parseHeartbeat(data []byte, err error) (h Heartbeat, _ error) {
	if err != nil {
		return Heartbeat{}, err
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return Heartbeat{}, err
	}
	return h, nil
}

// Notes keeps the heartbeat of a mirror in the directory of its copies. It is for one goroutine.
type Notes struct {
	dir   *os.Root
	store string
}

// NewNotes returns the notes in a directory for a store. They name it by its place, which must tell it from every other one:
// "file://./keysets" is another directory wherever a mirror runs. It removes temporary files of killed processes.
func NewNotes(dir *os.Root, place string) *Notes {
	n := &Notes{dir: dir, store: place}
	_ = n.writer().RemoveTemps(dir, ".", leftover) // they are hidden and do no harm
	return n
}

// leftover is the age from which a temporary file counts as abandoned.
const leftover = time.Hour

// writer writes files that everybody may read, like the copies.
func (n *Notes) writer() durable.Writer {
	return durable.Writer{FS: durable.Root{Root: n.dir}, Owner: "keypost-mirror", Mode: 0o644}
}

// Heartbeat returns that of an earlier run; the zero Heartbeat if there is none.
func (n *Notes) Heartbeat() (Heartbeat, error) {
	h, err := parseHeartbeat(regular.ReadIn(n.dir, HeartbeatFile, maxHeartbeat))
	if errors.Is(err, fs.ErrNotExist) {
		return Heartbeat{}, nil
	}
	return h, err
}

// Write records a complete pass.
func (n *Notes) Write(s MirrorStatus) error {
	h := Heartbeat{Complete: s.Complete.UTC().Truncate(time.Millisecond), Store: n.store, KeySets: s.Held, Refused: len(s.Refused), Reasons: map[keystore.Name]keystore.Reason{}}
	names := slices.Sorted(maps.Keys(s.Refused))
	for _, n := range names[:min(len(names), maxReasons)] {
		h.Reasons[n] = s.Refused[n].Reason
	}
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return n.writer().Replace(HeartbeatFile, append(data, '\n'))
}
