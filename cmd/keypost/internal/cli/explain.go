package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/keystore/rotation"
)

// Misused reports whether an error is a mistake in what was typed.
func Misused(err error) bool {
	if _, is := errors.AsType[*usageError](err); is {
		return true
	}
	kind := catalog.KindOf(err)
	return kind == catalog.BadName || kind == catalog.BadPrefix || kind == catalog.Contradiction
}

// explained adds to a typed error of keystore or keystore/catalog what to do about it, in words of the command line.
func explained(err error) error {
	if err == nil {
		return nil
	}
	if _, hinted := errors.AsType[*HintedError](err); hinted {
		return err
	}
	if e, is := errors.AsType[*catalog.Error](err); is {
		return explainedSelection(err, e)
	}
	if errors.Is(err, keystore.ErrNotFound) {
		return WithHint(err, "%s", Command{"issuer", "list"})
	}
	if errors.Is(err, keystore.ErrReasonRequired) {
		return WithHint(err, "add --why REASON")
	}
	if e, is := errors.AsType[*keystore.RotationError](err); is {
		return WithHint(err, "%s, or %s", Command{"rotate", "status", string(e.KeySet)}, Command{"rotate", "rollback", string(e.KeySet), "--why", "REASON"})
	}
	if e, is := errors.AsType[*rotation.LifetimeError](err); is {
		return WithHint(err, "%s", Command{"issuer", "set", string(e.KeySet), "--token-lifetime", e.Longest.String()})
	}
	if e, is := errors.AsType[*keystore.GenerationError](err); is {
		return WithHint(err, "%s", Command{"issuer", "accept", string(e.KeySet), "--why", "REASON"})
	}
	if e, is := errors.AsType[*keystore.LastKeyError](err); is {
		if e.Step == "revoke" {
			return WithHint(err, "--replacement FILE puts another key in its place, --leave-empty publishes none")
		}
		return WithHint(err, "add another key first (%s), or withdraw the issuer (%s)", addKey(e.KeySet),
			Command{"issuer", "remove", string(e.KeySet), "--confirm-url", "URL", "--why", "REASON"})
	}
	if _, stored := errors.AsType[*keystore.BrokenError](err); errors.Is(err, keystore.ErrGoneReturned) && !stored {
		return WithHint(err, "make a new key: %s", Command{"key", "generate", "--out", "DIR"})
	}
	return explainedWrite(err)
}

// explainedSelection is explained for what an argument means, and for an issuer URL or name that is not free.
func explainedSelection(err error, e *catalog.Error) error {
	switch e.Kind {
	case catalog.BadName:
		if strings.ContainsAny(string(e.Names[0]), "./") {
			return WithHint(err, "an issuer URL begins with https://: write https://%s", strings.TrimLeft(string(e.Names[0]), "/"))
		}
	case catalog.Ambiguous:
		return WithHint(err, "give the name: %s or %s", e.Names[0], e.Names[1])
	case catalog.NoKeySet, catalog.MayBeOne:
		return WithHint(err, "%s", Command{"issuer", "list"})
	case catalog.NoKey, catalog.BadPrefix:
		if len(e.Names) > 0 {
			return WithHint(err, "%s", Command{"key", "list", string(e.Names[0])})
		}
	case catalog.Taken:
		return WithHint(err, "to add keys to it: %s", addKey(e.Names[0]))
	case catalog.Tombstone:
		return WithHint(err, "choose another name")
	case catalog.Reuse:
		return WithHint(err, "to give it out again nevertheless, add --reuse-url --why REASON")
	case catalog.Unread:
		return WithHint(err, "mend its document, or put the last good one back (from Git or a backup)")
	case catalog.Revoked:
		return WithHint(err, "make a new key (%s); if you know that this one is in no wrong hands, issuer add, key add and key revoke take it with --force --why REASON", Command{"key", "generate", "--out", "DIR"})
	case catalog.Collision:
		return WithHint(err, "agree on one of them, and withdraw the other: %s", Command{"issuer", "remove", string(e.Names[0]), "--confirm-url", "URL", "--why", "REASON", "--force"})
	case catalog.KeyGone, catalog.Contradiction, catalog.Barred:
	}
	return err
}

// explainedWrite is explained for a write that is refused. [Factory.AtGate] adds what depends on the key set.
func explainedWrite(err error) error {
	switch e, closed := errors.AsType[*keystore.NotYetError](err); {
	case closed && (e.Gate == gate.GateCaches || e.Gate == gate.GateTokens):
		return WithHint(err, "try again at %s", Stamp(e.Opens))
	case closed:
		return err
	case errors.Is(err, keystore.ErrReadOnly):
		return WithHint(err, "change it where the key sets come from, or as somebody who may")
	case errors.Is(err, keystore.ErrConflict):
		return WithHint(err, "look at it, and try again: %s", Command{"issuer", "show", "ISSUER"})
	}
	return err
}

func addKey(to keystore.Name) Command {
	return Command{"key", "add", string(to), "--public-key-file", "FILE"}
}

// ObserveCommand returns the command that observes a key set, at the first of the vantages that its policy asks for.
func ObserveCommand(s keystore.KeySet) Command {
	c := Command{"issuer", "observe", string(s.Name())}
	if from := s.Policy().ObserveFrom; len(from) > 0 {
		c = append(c, "--vantage", from[0])
	}
	return c
}

// observeHint adds to the error of a gate that a look opens how to look.
func (f *Factory) observeHint(err error, s keystore.KeySet) error {
	c, others := ObserveCommand(s), ""
	if from := s.Policy().ObserveFrom; len(from) > 1 {
		others = ", and there likewise: " + strings.Join(from[1:], ", ")
	}
	if f.Observations == "" {
		return WithHint(err, "%s%s; then give this command the same --observations", append(c, "--observations", UnknownPlace), others)
	}
	return WithHint(err, "%s%s", c, others)
}

// AtGate adds to an error of a closed gate what opens it in that key set.
func (f *Factory) AtGate(err error, s keystore.KeySet) error {
	e, closed := errors.AsType[*keystore.NotYetError](err)
	if _, hinted := errors.AsType[*HintedError](err); !closed || hinted {
		return err
	}
	key, _ := s.Key(e.Key)
	switch {
	case e.Step == "promote" && key.State == keystore.Next && !e.Opens.IsZero() && (e.Gate == gate.GateCaches || e.Gate == gate.GateCopies) && NoneActive(s):
		return WithHint(err, "no key is active, so that waiting keeps no token valid; at once: %s; else try again at %s", PromoteForced(s, e.Key, "REASON"), Stamp(e.Opens))
	case e.Gate == gate.GateObserved || e.Gate == gate.GateFresh:
		return f.observeHint(err, s)
	case e.Gate == gate.GateFetched:
		return WithHint(err, "%s", FetchedCommand(s))
	case e.Gate == gate.GateCaches:
		return WithHint(err, "try again at %s with a fresh look; what looks and waits by itself is keypost rotate step --wait", Stamp(e.Opens))
	case e.Gate == gate.GateCopies:
		return f.copiesHint(err, s)
	case e.Gate == gate.GateSigning && e.Step == "remove" && key.State == keystore.Next:
		return WithHint(err, "add --never-signed if it has not, or %s", GateCommand(e, s))
	}
	if c := GateCommand(e, s); c != nil {
		return WithHint(err, "%s", c)
	}
	return err
}

// NoneActive reports whether a key set has no key with which a cluster may sign.
func NoneActive(s keystore.KeySet) bool {
	return !slices.ContainsFunc(s.Keys(), func(k keystore.Key) bool { return k.State == keystore.Active })
}

// PromoteForced returns the command that lets a next key sign however long its gate stays closed.
func PromoteForced(s keystore.KeySet, id keystore.KeyID, why string) Command {
	return Command{"key", "promote", string(s.Name()), string(id), "--force", "--why", why}
}

// FetchedCommand returns the command that records when a relying party last fetched the keys of a key set.
func FetchedCommand(s keystore.KeySet) Command {
	who := "PARTY"
	if parties := s.Policy().RelyingParties; len(parties) == 1 {
		who = parties[0]
	}
	return Command{"issuer", "observe", string(s.Name()), "--fetched", who + "=TIME"}
}

// SyncCommand returns the command that uploads the published keys of a key set to whom its policy names, and reads them back.
func SyncCommand(n keystore.Name) Command { return Command{"sync-keys", string(n)} }

// Syncs reports whether that command uploads to anyone: the policy may name only kinds that this keypost does not know.
func Syncs(s keystore.KeySet) bool {
	return slices.ContainsFunc(s.Policy().Uploads(), party.KnownUpload)
}

// SayCopies prints, after a change of the published keys, how the copies that relying parties hold follow.
func (f *Factory) SayCopies(s keystore.KeySet) {
	if Syncs(s) {
		f.Notice("what relying parties hold (%s) is as before, until: %s", text.Count(len(s.Policy().Uploads()), "copy", "copies"), SyncCommand(s.Name()))
	}
}

// copiesHint adds to the error of a gate that an upload opens how to upload, and when.
func (f *Factory) copiesHint(err error, s keystore.KeySet) error {
	c := SyncCommand(s.Name())
	e, _ := errors.AsType[*keystore.NotYetError](err)
	switch {
	case !Syncs(s):
		return err
	case f.Observations == "":
		return WithHint(err, "%s; then give this command the same --observations", c)
	case !e.Opens.IsZero():
		return WithHint(err, "try again at %s, when the copies were read back again: %s", Stamp(e.Opens), c)
	}
	return WithHint(err, "%s", c)
}

// GateCommand returns the command by which a person says what a gate does not have and no look shows; nil where there is none.
func GateCommand(e *keystore.NotYetError, s keystore.KeySet) Command {
	retire := func(id keystore.KeyID) Command {
		return Command{"key", "retire", string(s.Name()), string(id), "--why", "STATEMENT"}
	}
	switch e.Gate {
	case gate.GateEdge:
		return Command{"issuer", "set", string(s.Name()), "--edge-hold", "DURATION"}
	case gate.GateUndeclared:
		return Command{"issuer", "set", string(s.Name()), "--token-lifetime", "DURATION"}
	case gate.GateSigning:
		return retire(e.Key)
	case gate.GateActiveKeys:
		for _, k := range s.Keys() {
			if k.State == keystore.Active {
				return retire(k.ID())
			}
		}
	}
	return nil
}
