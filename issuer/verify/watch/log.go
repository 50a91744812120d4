package watch

import (
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
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
	case UnexpectedCA:
		return lines{zapcore.WarnLevel, "a certificate is of an unexpected CA", "certificates are of expected CAs"}
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
