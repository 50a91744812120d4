package terminal

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/mattn/go-runewidth"

	"github.com/keypost/keypost/internal/text"
)

// Table is rows of cells. An empty row parts the table into runs whose columns are aligned.
type Table struct {
	rows     [][]string
	commands []int // the rows that are one
}

// maxCell bounds a cell, in characters: a key set may have many issuer URLs.
const maxCell = 32000

// Row adds a row. Whatever a file, a server or a person put into it cannot change how it looks.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = text.OneLine(fmt.Sprint(c), maxCell)
	}
	t.rows = append(t.rows, row)
}

// commandIndent is how far a command stands in.
const commandIndent = 5

// Command adds a row with a command line of a shell.
func (t *Table) Command(command string) {
	t.commands = append(t.commands, len(t.rows))
	t.rows = append(t.rows, []string{strings.Repeat(" ", commandIndent) + text.OneLine(command, maxCell)})
}

// Write writes the table for a screen. Where there is none its form is stable, for scripts.
func (t *Table) Write(w io.Writer, s Screen) error {
	if s.Width == 0 {
		plain := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		for _, row := range t.rows {
			_, _ = fmt.Fprintln(plain, strings.Join(row, "\t")) // Flush reports what went wrong
		}
		return plain.Flush()
	}
	var b strings.Builder
	for start := 0; start < len(t.rows); {
		end := start
		for end < len(t.rows) && len(t.rows[end]) > 0 && !slices.Contains(t.commands, end) {
			end++
		}
		if end > start {
			s.run(&b, t.rows[start:end])
		}
		switch start = end + 1; {
		case end == len(t.rows):
		case slices.Contains(t.commands, end):
			b.WriteString(Shell(strings.TrimLeft(t.rows[end][0], " "), s.Width, commandIndent) + "\n")
		default:
			b.WriteByte('\n')
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const (
	gap      = "  " // between columns
	leastEnd = 20   // columns that a wrapped last cell needs
)

// run lays out rows without a gap: in columns, whose last one wraps; or each row as a block, under the names of the heading.
func (s Screen) run(b *strings.Builder, rows [][]string) {
	shown := make([][]string, len(rows))
	for i, row := range used(rows) {
		for _, cell := range row {
			shown[i] = append(shown[i], s.cell(cell))
		}
		for len(shown[i]) > 1 && shown[i][len(shown[i])-1] == "" { // else the cell before it could not wrap
			shown[i] = shown[i][:len(shown[i])-1]
		}
	}
	widths := columns(shown)
	fits := !slices.ContainsFunc(shown, func(row []string) bool {
		last := len(row) - 1
		return last > 0 && offset(widths, last)+min(width(row[last]), leastEnd) > s.Width
	})
	switch {
	case fits:
		for _, row := range shown {
			s.line(b, row, widths)
		}
	case isHeading(rows[0]):
		s.blocks(b, shown)
	default:
		for _, row := range shown {
			b.WriteString(Wrap(strings.Join(row, gap), s.Width, 0, 4) + "\n")
		}
	}
}

// used returns rows below a heading without the columns that are empty but for it.
func used(rows [][]string) [][]string {
	if !isHeading(rows[0]) || len(rows) == 1 {
		return rows
	}
	list := make([][]string, len(rows))
	for c := range rows[0] {
		empty := !slices.ContainsFunc(rows[1:], func(row []string) bool { return c < len(row) && row[c] != "" })
		for i, row := range rows {
			if c < len(row) && !empty {
				list[i] = append(list[i], row[c])
			}
		}
	}
	return list
}

// columns returns the widths of columns. A row's last cell counts for none: nothing stands behind it.
func columns(rows [][]string) (widths []int) {
	for _, row := range rows {
		for i, cell := range row[:max(len(row)-1, 0)] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(cell))
		}
	}
	return widths
}

// offset returns where column i begins.
func offset(widths []int, i int) (at int) {
	for _, w := range widths[:i] {
		at += w + len(gap)
	}
	return at
}

// line writes a row in columns; its last cell wraps below itself.
func (s Screen) line(b *strings.Builder, row []string, widths []int) {
	var before strings.Builder
	last := len(row) - 1
	for i, cell := range row[:last] {
		before.WriteString(s.mark(cell) + strings.Repeat(" ", widths[i]-width(cell)+len(gap)))
	}
	at := offset(widths, last)
	rest := at
	if last == 0 {
		rest = 4
	}
	lead := row[last][:len(row[last])-len(strings.TrimLeft(row[last], " "))]
	end := Wrap(row[last], s.Width, at+len(lead), rest+len(lead))
	if width(row[last])+at <= s.Width {
		end = strings.TrimLeft(row[last], " ")
	}
	b.WriteString(strings.TrimRight(before.String()+lead+s.mark(end), " ") + "\n")
}

// blocks writes each row below the heading as lines "NAME  value". A row without a first cell goes on with the block before.
func (s Screen) blocks(b *strings.Builder, rows [][]string) {
	heading := rows[0]
	name := 0
	for _, cell := range heading {
		name = max(name, width(cell))
	}
	for i, row := range rows[1:] {
		if i > 0 && len(row) > 0 && row[0] != "" {
			b.WriteByte('\n')
		}
		for c, cell := range row {
			if strings.TrimSpace(cell) != "" && c < len(heading) {
				s.line(b, []string{heading[c], cell}, []int{name})
			}
		}
	}
}

var headingCell = regexp.MustCompile(`^[A-Z][A-Z0-9 ()-]*$`)

func isHeading(row []string) bool {
	return len(row) > 1 && !slices.ContainsFunc(row, func(cell string) bool { return !headingCell.MatchString(cell) })
}

func width(cell string) int { return runewidth.StringWidth(cell) }

// marks are the verdicts that a cell may begin with.
var marks = []struct{ verdict, mark, color string }{
	{"ok", "✓", green}, {"warn", "!", yellow}, {"fail", "✗", red}, {"rejected", "✗", red}, {"broken", "✗", red},
}

// cell returns a cell for a person: a verdict has its mark, and what is not a command is humanized.
func (s Screen) cell(cell string) string {
	for _, m := range marks {
		if after, is := strings.CutPrefix(cell, m.verdict); is && (after == "" || strings.ContainsAny(after[:1], ",( ")) {
			cell = m.mark + " " + cell
		}
	}
	if strings.Contains(cell, "keypost ") {
		return cell
	}
	return s.humanized(cell)
}

// mark colours the mark of a verdict, after the cell was measured.
func (s Screen) mark(cell string) string {
	for _, m := range marks {
		if after, is := strings.CutPrefix(cell, m.mark+" "+m.verdict); is {
			return s.paint(m.color, m.mark+" "+m.verdict) + after
		}
	}
	return cell
}
