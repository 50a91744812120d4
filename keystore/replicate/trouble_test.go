package replicate_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/replicate"
	"github.com/keypost/keypost/keystore/storetest"
)

// Before the first complete pass nothing is copied only on a report: of two newcomers with one issuer URL the one that is
// reported first would get it.
func TestMirrorCopiesNoReportBeforeACompletePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrored(t)
		m.from.Inject(failOn(storetest.OpList))
		defer m.run()()
		m.from.Set("prod-b", []byte(storetest.Text(t, storetest.KeySet(t, "prod-b"))))
		time.Sleep(time.Second)
		m.wantCopied("prod-b", "")
	})
}

// A copy that somebody put back behind what it was is as it is in the store, but not the last good version.
func TestMirrorTellsOfACopyThatWentBack(t *testing.T) {
	m := newMirrored(t)
	m.pass()
	m.to.Set("prod-a", m.edited("third", "fourth"))
	must(t, m.ReadCopy(t.Context()))
	m.to.Set("prod-a", []byte(m.current))
	m.pass()
	m.wantRefused(lastgood.ReasonOlderGeneration, 1)
}

// What the copy holds must be known before anything is written over it.
func TestACopyThatCannotBeReadIsNotWritten(t *testing.T) {
	m := newMirrored(t)
	m.to.Set("prod-a", m.edited("third", "fourth"))
	writes := m.to.Writes()
	m.to.Inject(failOn(storetest.OpGet))
	if err := m.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), `"prod-a"`) || !m.Status().Failing || m.Ready() == nil {
		t.Errorf("Pass = %v, status %+v, ready %v", err, m.Status(), m.Ready())
	}
	if all, err := replicate.Copy(t.Context(), m.from, m.to, false); err == nil {
		t.Errorf("Copy = %v", all)
	}
	if n := m.to.Writes() - writes; n != 0 {
		t.Errorf("%d writes", n)
	}
	m.wantLogged("the copy cannot be written", 1)
}

// The age of the copy counts from the beginning of the pass: what changed during it may not be in the copy.
func TestMirrorIsAsOldAsTheBeginningOfItsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrored(t)
		m.from.Inject(func(context.Context, storetest.Op) (bool, error) { time.Sleep(2 * time.Second); return true, nil })
		began := time.Now()
		m.pass()
		if got := m.Status().Complete; !got.Equal(began) {
			t.Errorf("the copy was made %v after the beginning", got.Sub(began))
		}
	})
}
