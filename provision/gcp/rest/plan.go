package rest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"slices"
	"strings"
)

// Undeleted is what a plan shows of a thing that is deleted, and comes back.
const Undeleted = "+ brought back: it was deleted, and Google still keeps it"

// Present makes a call that reads one thing, and returns nil for one that is not there.
func Present[T any](ctx context.Context, c *Client, k Call) (*T, error) {
	var out T
	err := c.Ask(ctx, k, &out)
	if IsMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// Patch collects what a PATCH changes.
type Patch struct {
	Mask []string
	Body map[string]any
	Diff []string
}

// Add changes a field, which is named as in an update mask ("oidc.issuerUri").
func (p *Patch) Add(field string, value any, diff ...string) {
	p.Mask, p.Diff = append(p.Mask, field), append(p.Diff, diff...)
	if p.Body == nil {
		p.Body = map[string]any{}
	}
	in := p.Body
	if of, inner, nested := strings.Cut(field, "."); nested {
		if in[of] == nil {
			in[of] = map[string]any{}
		}
		in, field = in[of].(map[string]any), inner
	}
	in[field] = value
}

// Call returns k as the PATCH.
func (p *Patch) Call(k Call) Call {
	k.Method, k.Query, k.Body = "PATCH", Query("updateMask", strings.Join(p.Mask, ",")), p.Body
	return k
}

// Replaced returns the lines of a diff of one value.
func Replaced(what, before, after string) []string {
	var diff []string
	if before != "" {
		diff = append(diff, "- "+what+before)
	}
	if after != "" {
		diff = append(diff, "+ "+what+after)
	}
	return diff
}

// Minus returns what a has and b does not have, once each, in a's order.
func Minus(a, b []string) []string {
	var out []string
	for _, s := range a {
		if !slices.Contains(b, s) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// Lines returns the lines of a diff.
func Lines(less string, gone []string, more string, added []string) []string {
	var out []string
	for _, s := range gone {
		out = append(out, less+s)
	}
	for _, s := range added {
		out = append(out, more+s)
	}
	return out
}

// Cut returns so many bytes of s at most, and no half of a letter.
func Cut(s string, limit int) string { return strings.ToValidUTF8(s[:min(len(s), limit)], "") }

// Hashed returns five letters or digits that stand for s.
func Hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:5])
}

// Readable returns a value as JSON for people.
func Readable(v any) []byte {
	var out bytes.Buffer
	_ = json.Indent(&out, JSON(v), "", "    ") // it was just marshaled
	out.WriteByte('\n')
	return out.Bytes()
}
