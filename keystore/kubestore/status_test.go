package kubestore

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// patched is a fake that has one object, prod-a, and notes what its status is patched with.
type patched struct {
	*Backend
	mu     sync.Mutex
	object string
	code   int // of the answer to a patch
	bodies []string
}

func newPatched(t *testing.T) *patched {
	f := newFake(t)
	p := &patched{Backend: f.store(), code: http.StatusOK}
	f.when(func(w http.ResponseWriter, r *http.Request, _ func() answer) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if r.Method == http.MethodPatch {
			body, _ := io.ReadAll(r.Body)
			p.bodies = append(p.bodies, string(body))
		}
		switch {
		case r.Method == http.MethodGet && r.URL.Path == collection+"/prod-a":
			_, _ = io.WriteString(w, p.object)
		case r.Method == http.MethodPatch && r.URL.Path == collection+"/prod-a/status" && p.code == http.StatusOK:
			_, _ = io.WriteString(w, p.object)
		case r.Method == http.MethodPatch && r.URL.Path == collection+"/prod-a/status":
			failure(p.code, strings.ReplaceAll(http.StatusText(p.code), " ", ""), "prod-a", `User "x" cannot patch resource`).write(w)
		default:
			failure(http.StatusNotFound, "NotFound", r.URL.Path, "not found").write(w)
		}
		return true
	})
	return p
}

// TestSetStatus holds what is sent, and when nothing is.
func TestSetStatus(t *testing.T) {
	const (
		before = `{"metadata":{"resourceVersion":"41","generation":7},"spec":{"generation":2},"status":`
		theirs = `{"type":"Synced","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}`
		now    = "2026-03-01T12:00:00Z"
	)
	ours := func(status, of, since string) string {
		return `{"type":"Published","status":"` + status + `","reason":"Seen","message":"m","observedGeneration":` + of + `,"lastTransitionTime":"` + since + `"}`
	}
	wanted := func(conditions string) string {
		return `{"metadata":{"resourceVersion":"41"},"status":{"observedGeneration":7,"generation":2,"conditions":[` + conditions + `]}}`
	}
	for name, tc := range map[string]struct {
		object string
		code   int
		body   string // empty: nothing is sent
		done   bool
		fails  string
	}{
		"none yet":               {object: before + `null}`, body: wanted(ours("True", "7", now)), done: true},
		"another word":           {object: before + `{"conditions":[` + ours("False", "7", "2026-02-01T00:00:00Z") + `]}}`, body: wanted(ours("True", "7", now)), done: true},
		"the same word":          {object: before + `{"conditions":[` + ours("True", "6", "2026-02-01T00:00:00Z") + `]}}`, body: wanted(ours("True", "7", "2026-02-01T00:00:00Z")), done: true},
		"the same":               {object: before + `{"observedGeneration":7,"generation":2,"conditions":[` + ours("True", "7", "2026-02-01T00:00:00Z") + `]}}`, done: true},
		"another's condition":    {object: before + `{"conditions":[` + theirs + `]}}`, body: wanted(theirs + "," + ours("True", "7", now)), done: true},
		"another version by now": {object: strings.Replace(before, `"spec":{"generation":2}`, `"spec":{"generation":3}`, 1) + `null}`},
		"written to meanwhile":   {object: before + `null}`, code: http.StatusConflict, body: wanted(ours("True", "7", now))},
		"gone meanwhile":         {object: before + `null}`, code: http.StatusNotFound, body: wanted(ours("True", "7", now))},
		"no right":               {object: before + `null}`, code: http.StatusForbidden, body: wanted(ours("True", "7", now)), fails: "needs patch on keysets/status.keypost.dev"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatched(t)
			p.object = tc.object
			if tc.code != 0 {
				p.code = tc.code
			}
			at, _ := time.Parse(time.RFC3339, now)
			done, err := p.SetStatus(t.Context(), "prod-a", Status{2, []Condition{{Type: "Published", Status: "True", Reason: "Seen", Message: "m"}}}, at)
			if done != tc.done || (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("done %v, error %v", done, err)
			}
			if sent := strings.Join(p.bodies, "\n"); !sameJSON(sent, tc.body) {
				t.Errorf("sent\n%s\nwant\n%s", sent, tc.body)
			}
		})
	}
}

func sameJSON(a, b string) bool {
	var left, right any
	if a == "" || b == "" {
		return a == b
	}
	return json.Unmarshal([]byte(a), &left) == nil && json.Unmarshal([]byte(b), &right) == nil && reflect.DeepEqual(left, right)
}
