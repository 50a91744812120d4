package watch

import (
	"reflect"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// lines are what is logged about a condition.
type lines struct {
	level       zapcore.Level // of begins
	begins, end string
}

func linesOf(c Condition) lines {
	switch c {
	case RogueKey:
		return lines{zapcore.ErrorLevel, "a key is published that the store does not know", "no key is published any more that the store does not know"}
	case ServedNotStored:
		return lines{zapcore.WarnLevel, "keys are not published as they are stored", "keys are published as they are stored"}
	case Unreachable:
		return lines{zapcore.WarnLevel, "an issuer does not answer", "an issuer answers again"}
	case Incomplete:
		return lines{zapcore.WarnLevel, "a look is not complete", "looks are complete"}
	case NotCompared:
		return lines{zapcore.WarnLevel, "what is published cannot be compared with the store", "what is published is compared with the store again"}
	}
	return lines{zapcore.WarnLevel, "a look cannot be recorded", "looks are recorded again"}
}

// logChanges logs what has changed about an issuer: a condition that began or ended, or that another key is rogue.
func logChanges(log *zap.Logger, before, after Status) {
	for _, c := range Conditions() {
		was, held := before.Conditions[c]
		is, holds := after.Conditions[c]
		fields := []zap.Field{zap.String("key_set", string(after.KeySet)), zap.String("issuer", after.URL)}
		switch l := linesOf(c); {
		case holds && (!held || c == RogueKey && !slices.Equal(was.Evidence, is.Evidence)):
			log.Log(l.level, l.begins, append(fields, zap.Strings("evidence", is.Evidence), zap.Strings("at", is.At))...)
		case held && !holds:
			log.Info(l.end, fields...)
		}
	}
}

// logOlder logs that the stored version of a key set is older than one before, or is so no more.
func logOlder(log *zap.Logger, n keystore.Name, was, is *observation.Older) {
	switch {
	case reflect.DeepEqual(was, is):
	case is != nil && len(is.Revived) > 0:
		log.Error("the store went back, and a key that is gone is published again",
			zap.String("key_set", string(n)), zap.Int64("stored", is.Stored), zap.Int64("before", is.Recorded), zap.Any("keys", is.Revived))
	case is != nil:
		log.Warn("the store went back to an older version", zap.String("key_set", string(n)), zap.Int64("stored", is.Stored), zap.Int64("before", is.Recorded))
	default:
		log.Info("the store holds the newest version again", zap.String("key_set", string(n)))
	}
}

// logUploads logs which uploads of a key set are in trouble, or are so no more.
func logUploads(log *zap.Logger, before, after []Upload) {
	was := map[string]verify.UploadTrouble{}
	for _, u := range before {
		was[u.Upload], _ = u.Trouble()
	}
	for _, u := range after {
		fields := []zap.Field{zap.String("key_set", string(u.KeySet)), zap.String("upload", text.OneLine(u.Upload, 300))}
		switch t, why := u.Trouble(); {
		case t != "" && t != was[u.Upload]:
			log.Warn("an upload is not known to have the published keys", append(fields, zap.String("reason", string(t)), zap.String("evidence", why))...)
		case t == "" && was[u.Upload] != "":
			log.Info("an upload has the published keys", fields...)
		}
	}
}
