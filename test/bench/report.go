package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// report prints what was measured as it comes, and counts the bars that were missed.
type report struct {
	w      io.Writer
	tab    *tabwriter.Writer
	missed int // bars
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

// bar is what a value may be at most.
type bar float64

// verdict judges a value, and spells the bar and the judgement.
func (r *report) verdict(value float64, most bar, format string) string {
	text := "≤ " + fmt.Sprintf(format, float64(most))
	if value <= float64(most) {
		return text + "  PASS"
	}
	r.missed++
	return text + "  FAIL"
}

// bound is what a value may be and what it should be at most; zero is neither. A missed bar fails the run, a missed
// target is reported.
type bound struct{ bar, target bar }

// judge judges a value, and spells its bound and the judgement. format is that of one value, with its unit.
func (r *report) judge(value float64, most bound, format string) string {
	text := ""
	if most.bar != 0 {
		text = r.verdict(value, most.bar, format)
	}
	if most.target == 0 {
		return text
	}
	if text != "" {
		text += ", "
	}
	text += "target ≤ " + fmt.Sprintf(format, float64(most.target))
	if value <= float64(most.target) {
		return text + "  reached"
	}
	return text + "  missed"
}
