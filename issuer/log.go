package issuer

import (
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

// log writes one line about a key set once the batch has been applied.
func (b *batch) log(level zapcore.Level, message string, n keystore.Name, more ...zap.Field) {
	fields := append([]zap.Field{zap.String("key_set", string(n))}, more...)
	b.lines = append(b.lines, func() { b.p.c.Log.Log(level, message, fields...) })
}

func generationField(v *version) zap.Field { return zap.Int64("generation", v.Generation()) }

// logReady logs everything that is published at the start, in one line and not in ten thousand. It is called with mu
// held.
func (b *batch) logReady(now progress, issuers int) {
	keys := 0
	for _, e := range b.p.entries {
		if e.served != nil && !e.served.Withdrawn() {
			keys += e.served.keys()
		}
	}
	b.lines = append(b.lines, func() {
		b.p.c.Log.Info("ready: every key set of a complete listing has been read",
			zap.Int("issuers", issuers), zap.Int("key_sets", now.total), zap.Int("keys", keys), zap.Int("unserved", now.unserved))
	})
}

// logNews logs one line for a change of state, and none when the state is as before.
func (b *batch) logNews(n keystore.Name, was, now *entry) {
	if was == nil {
		was = &entry{}
	}
	replaced := now.served != was.served && (was.served == nil || was.served.Digest() != now.served.Digest())
	switch {
	case now.rejected != nil && !now.rejected.IsNew(was.rejected):
	case now.rejected.Expected():
		b.log(zap.InfoLevel, "key set is not served here, as nobody reads its documents", n, zap.String("message", now.rejected.Message))
	case now.rejected != nil:
		fields := []zap.Field{zap.String("reason", string(now.rejected.Reason)), zap.String("message", now.rejected.Message)}
		if now.served != nil {
			fields = append(fields, zap.Int64("served_generation", now.served.Generation()))
		}
		b.log(zap.WarnLevel, "key set rejected; its last good version, if any, stays served", n, fields...)
	case replaced:
		level := zap.InfoLevel
		if b.p.first.IsZero() { // at the start everything is published
			level = zap.DebugLevel
		}
		b.log(level, publishedMessage(now.served), n, publishedFields(was.served, now.served)...)
	case was.rejected != nil:
		b.log(zap.InfoLevel, "key set is as it is served again", n, generationField(now.served))
	}
	now.served.logged()
}

func publishedMessage(v *version) string {
	if v.Withdrawn() {
		return "key set withdrawn"
	}
	return "key set published"
}

// publishedFields returns what a version changes: which keys relying parties trust from now on and which no longer, who
// changed that and why. previous_generation shows whether this process has missed a generation in between; its changes
// are in the history all the same.
func publishedFields(was, now *version) []zap.Field {
	fields := []zap.Field{generationField(now), zap.Int("keys", now.keys())}
	var before []string
	var last uint64
	if was != nil {
		fields = append(fields, zap.Int64("previous_generation", was.Generation()))
		before, last = was.kidList(), was.lastEvent
	}
	after := now.kidList()
	if added := without(after, before); len(added) > 0 {
		fields = append(fields, zap.Strings("kids_added", added))
	}
	if removed := without(before, after); len(removed) > 0 {
		fields = append(fields, zap.Strings("kids_removed", removed))
	}
	if news := newEvents(now.history, last); len(news) > 0 {
		fields = append(fields, zap.Array("changes", news))
	}
	return fields
}

// without returns those of all that are not in no. Both are sorted.
func without(all, no []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(id string) bool {
		_, found := slices.BinarySearch(no, id)
		return found
	})
}

// maxEvents bounds the lines of history in a line of the log, and maxText each text in it: the writer of a key set must
// not be able to fill a disk.
const (
	maxEvents = 10
	maxText   = 200
)

// events are lines of a key set's history as the log shows them.
type events []keystore.Event

// newEvents returns the lines after the one with the given digest, at most the last maxEvents.
func newEvents(history []keystore.Event, last uint64) events {
	from := 0
	for i, e := range slices.Backward(history) {
		if eventDigest(e) == last {
			from = i + 1
			break
		}
	}
	return history[max(from, len(history)-maxEvents):]
}

// MarshalLogArray implements zapcore.ArrayMarshaler.
func (all events) MarshalLogArray(enc zapcore.ArrayEncoder) error {
	for _, e := range all {
		if err := enc.AppendObject(event(e)); err != nil {
			return err
		}
	}
	return nil
}

type event keystore.Event

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (e event) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("what", plain(e.What))
	enc.AddString("by", plain(e.By))
	if e.As != "" {
		enc.AddString("as", plain(e.As))
	} else {
		enc.AddBool("self_declared", true)
	}
	if e.Keys != "" {
		enc.AddString("keys", plain(e.Keys))
	}
	if e.Why != "" {
		enc.AddString("why", plain(e.Why))
	}
	if e.Forced {
		enc.AddBool("forced", true)
	}
	return nil
}

// plain makes text that somebody else has written fit for a log and the terminal that shows it.
func plain(s string) string { return text.OneLine(s, maxText) }
