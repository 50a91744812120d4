package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// report prints what was measured as it comes, and remembers whether a bar was missed.
type report struct {
	w      io.Writer
	tab    *tabwriter.Writer
	missed int
}

func newReport(w io.Writer) *report { return &report{w: w} }

// table begins a table; a row has as many cells as columns.
func (r *report) table(title string, columns ...string) {
	r.end()
	fmt.Fprintf(r.w, "\n%s\n", title)
	r.tab = tabwriter.NewWriter(r.w, 0, 0, 2, ' ', 0)
	r.row(columns...)
}

func (r *report) row(cells ...string) {
	for i, c := range cells {
		if i == 0 {
			c = "  " + c
		}
		fmt.Fprint(r.tab, c, "\t")
	}
	fmt.Fprintln(r.tab)
}

func (r *report) end() {
	if r.tab != nil {
		_ = r.tab.Flush() // the reader is gone, then
		r.tab = nil
	}
}

func (r *report) note(format string, args ...any) {
	r.end()
	fmt.Fprintf(r.w, format+"\n", args...)
}

// bar is what a value may be at most, or noBar for a value that is only printed.
type bar float64

// verdict judges a value, and spells the bar and the judgement.
func (r *report) verdict(value float64, most bar, format string) string {
	switch {
	case most == noBar:
		return ""
	case value <= float64(most):
		return "≤ " + fmt.Sprintf(format, float64(most)) + "  PASS"
	}
	r.missed++
	return "≤ " + fmt.Sprintf(format, float64(most)) + "  FAIL"
}

const noBar bar = -1
