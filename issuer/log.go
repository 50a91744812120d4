package issuer

import (
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// log writes one line about a key set once the batch has been applied.
func (b *batch) log(level zapcore.Level, message string, n keystore.Name, more ...zap.Field) {
	fields := append([]zap.Field{zap.String("key_set", string(n))}, more...)
	b.lines = append(b.lines, func() { b.p.c.Log.Log(level, message, fields...) })
}

func generationField(v *version) zap.Field { return zap.Int64("generation", v.Generation()) }

// logReady logs everything that is published at the start, in one line and not in ten thousand.
func (b *batch) logReady(now lastgood.Start, issuers int) {
	keys := 0
	for _, e := range b.next.entries {
		if e.served != nil && !e.served.Withdrawn() {
			keys += e.served.keys()
		}
	}
	b.lines = append(b.lines, func() {
		b.p.c.Log.Info("ready: every key set of a complete listing has been read",
			zap.Int("issuers", issuers), zap.Int("key_sets", now.KeySets), zap.Int("keys", keys), zap.Int("unserved", now.Without))
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
		if b.was.first.IsZero() { // at the start everything is published
			level = zap.DebugLevel
		}
		b.log(level, publishedMessage(now.served), n, publishedFields(was.served, now.served)...)
	case was.rejected != nil:
		b.log(zap.InfoLevel, "key set is as it is served again", n, generationField(now.served))
	}
}

func publishedMessage(v *version) string {
	if v.Withdrawn() {
		return "key set withdrawn"
	}
	return "key set published"
}

// publishedFields returns what a version changes: which keys relying parties trust from now on and which no longer. previous_generation
// shows whether this process has missed a generation in between. Who changed what, and why, is in the key set's history: keypost audit.
func publishedFields(was, now *version) []zap.Field {
	fields := []zap.Field{generationField(now), zap.Int("keys", now.keys())}
	if was != nil {
		fields = append(fields, zap.Int64("previous_generation", was.Generation()))
	}
	before, after := was.kidList(), now.kidList()
	if added := without(after, before); len(added) > 0 {
		fields = append(fields, zap.Any("kids_added", added))
	}
	if removed := without(before, after); len(removed) > 0 {
		fields = append(fields, zap.Any("kids_removed", removed))
	}
	return fields
}

// without returns those of all that are not in no. Both are sorted.
func without(all, no []keystore.KeyID) []keystore.KeyID {
	return slices.DeleteFunc(slices.Clone(all), func(id keystore.KeyID) bool {
		_, found := slices.BinarySearch(no, id)
		return found
	})
}
