package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

//go:embed style.css
var styleFile string

// styleText has no white space around it, which some checkers leave out of the hash.
var styleText = strings.TrimSpace(styleFile) //nolint:gochecknoglobals // nobody changes it

//go:embed pages.html
var pagesText string

// Policy returns the Content-Security-Policy of every page. A server adds it as a header.
// Nothing may be loaded or run; the one sheet of styles is known by its hash.
func Policy() string {
	sum := sha256.Sum256([]byte(styleText))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; form-action 'none'; base-uri 'none'"
}

var templates = template.Must(template.New("").Funcs(template.FuncMap{ //nolint:gochecknoglobals // parsed once, and never changed
	"style": func() template.CSS { return template.CSS(styleText) }, //nolint:gosec // it is our own
	"csp":   Policy, "stamp": stamp, "age": age, "left": left, "soon": soon, "count": text.Count, "short": short,
	"sum": counts, "path": keySetPath, "more": func(list []string) int { return len(list) - 1 },
	"arg": func(n *Next, made time.Time) step { return step{n, made} },
}).Parse(pagesText))

// step is what a template shows of the next step.
type step struct {
	Next *Next
	Made time.Time
}

// view is a page with what the templates need besides it.
type view struct {
	Title string
	Up    string // the way to the root
	Page  any
	About About
}

// HTML returns the page.
func HTML(p any) ([]byte, error) {
	var v view
	var name string
	switch p := p.(type) {
	case List:
		name, v = "list", view{"Key sets", "", p, p.About}
	case KeySet:
		name, v = "keyset", view{string(p.Name), "../", p, p.About}
	default:
		return nil, fmt.Errorf("a %T is not a page", p)
	}
	var b bytes.Buffer
	err := templates.ExecuteTemplate(&b, name, v)
	return bytes.Map(visible, b.Bytes()), err
}

// visible is the last word about what a page may hold: nothing that changes what stands around it.
func visible(r rune) rune {
	if r != '\n' && r != '\t' && !text.Printable(r) {
		return '?'
	}
	return r
}

func keySetPath(n keystore.Name) string { return "keysets/" + url.PathEscape(string(n)) + ".html" }

// Time is a moment on a page.
type Time struct{ Machine, People string }

// stamp returns a moment in UTC, to the second.
func stamp(t time.Time) Time {
	t = t.UTC()
	return Time{t.Format(time.RFC3339), t.Format("2006-01-02 15:04:05 UTC")}
}

// age returns how long ago t was, in words.
func age(now, t time.Time) string {
	switch d := now.Sub(t); {
	case d < 0:
		return "in the future"
	case d < time.Minute:
		return "just now"
	default:
		return span(d) + " ago"
	}
}

// left returns how long it is until t, in words.
func left(now, t time.Time) string {
	if d := t.Sub(now); d >= time.Minute {
		return "in " + span(d)
	} else if d > 0 {
		return "within a minute"
	}
	return "over"
}

// soon reports whether until t is less time than a person may need to renew a certificate.
func soon(now, t time.Time) bool { return t.Sub(now) < 7*24*time.Hour }

// span returns a duration of a minute or more in its two largest units.
func span(d time.Duration) string {
	days, hours, minutes := int(d/(24*time.Hour)), int(d/time.Hour)%24, int(d/time.Minute)%60
	var parts []string
	for _, part := range []struct {
		n         int
		one, many string
	}{{days, "day", "days"}, {hours, "hour", "hours"}, {minutes, "minute", "minutes"}} {
		if part.n > 0 {
			parts = append(parts, text.Count(part.n, part.one, part.many))
		}
	}
	return strings.Join(parts[:min(2, len(parts))], " ")
}

// short returns the beginning of a kid. The page about the key set has the whole.
func short(id keystore.KeyID) string {
	const enough = 12
	if len(id) <= enough {
		return string(id)
	}
	return string(id[:enough]) + "…"
}

// counts returns how many keys are in which state.
func counts(keys []Key) string {
	n := map[keystore.State]int{}
	for _, k := range keys {
		n[k.State]++
	}
	var parts []string
	for _, s := range []keystore.State{keystore.Active, keystore.Next, keystore.Retired} {
		if n[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[s], s))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
