package cli

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Elsewhere than on a terminal: nothing for 15 seconds, then a line as often, with the total.
func TestProgressWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		f := &Factory{Err: &out}
		p := f.Progress("reading the store", "key sets")
		p.Of(1000)
		time.Sleep(14 * time.Second)
		if out.Len() > 0 {
			t.Errorf("after 14 s: %q", out.String())
		}
		p.Done(312)
		time.Sleep(17 * time.Second)
		p.Now("waiting")
		time.Sleep(15 * time.Second)
		f.Warn("beside it")
		p.End()
		f.Notice("after")
		want := "reading the store: 312 of 1000 key sets, 15s\nreading the store: 312 of 1000 key sets, 30s\nreading the store: 312 of 1000 key sets, 45s: waiting\nwarning: beside it\nafter\n"
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}

// On a terminal: after two seconds a line that changes each second, cut to its width, and away before anything else is printed.
func TestProgressOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		f := &Factory{Err: &out}
		p := f.begin(&Progress{status: status{err: &out, width: func() int { return 30 }}, what: "reading the store", each: "key sets"})
		p.Of(7)
		time.Sleep(3500 * time.Millisecond)
		f.Notice("beside it")
		time.Sleep(time.Second)
		p.End()
		f.Notice("after")
		want := clearLine + "reading the store: 0 of 7 key" + clearLine + "reading the store: 0 of 7 key" + clearLine + "beside it\n" +
			clearLine + "reading the store: 0 of 7 key" + clearLine + "after\n"
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}

// What is done in a moment shows nothing.
func TestProgressOfAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		f := &Factory{Err: &out}
		p := f.begin(&Progress{status: status{err: &out, width: func() int { return 80 }}, what: "copying"})
		time.Sleep(1900 * time.Millisecond)
		p.End()
		if out.Len() > 0 {
			t.Errorf("%q", out.String())
		}
	})
}
