package kubestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/keystore"
)

// A watch ends every few minutes by agreement, so that it moves to another API server in time and a dead connection
// is noticed. The next one goes on from there, without a report.
const (
	watchTime  = 5 * time.Minute
	watchGrace = 30 * time.Second
	eventLimit = 1 << 20 // bytes: metadata has at most 256 kB of annotations
)

// Watch calls changed once when the watch is established, since changes before that were not seen, and then with the name of
// every key set that changes or vanishes. It returns an error when the connection is cut, when the API server has
// forgotten the state that the watch had reached (410), and when it may watch no more.
func (s *Backend) Watch(ctx context.Context, changed func(...keystore.Name)) error {
	err := s.watch(ctx, changed)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch %s in %s: %w", s.api.many, s.api.place, s.api.advise(err, "get, list and watch"))
}

func (s *Backend) watch(ctx context.Context, changed func(...keystore.Name)) error {
	state, err := s.page(ctx, 1, "")
	if err != nil {
		return err
	}
	w := &watch{api: s.api, reached: state.Metadata.ResourceVersion, changed: changed, stands: func() { changed() }}
	for {
		began := time.Now()
		if err := w.follow(ctx); err != nil {
			return err
		}
		if time.Since(began) < s.api.shortest {
			return errors.New("the API server, or something before it, ends the watch at once")
		}
	}
}

// watch is a watch that goes on over several requests.
type watch struct {
	api     api
	reached string // resourceVersion up to which everything was seen
	changed func(...keystore.Name)
	stands  func() // called when the first request is answered
}

// follow reports changes until the API server ends the watch as agreed.
func (w *watch) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchTime+watchGrace)
	defer cancel()
	body, err := w.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	w.stands()
	w.stands = func() {}
	limited := &meter{r: body}
	for events := json.NewDecoder(limited); ; {
		limited.left = eventLimit
		var e event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("the watch was cut: %w", kubeapi.Cause(err))
		}
		if err := w.take(e); err != nil {
			return err
		}
	}
}

// begin sends the request; the answer's head comes in time or never.
func (w *watch) begin(ctx context.Context) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(w.api.timeout, func() { cancel(fmt.Errorf("no answer within %v", w.api.timeout)) })
	resp, err := w.api.client.Send(ctx, kubeapi.Request{Method: http.MethodGet, Path: w.api.collection, Accept: metadataOne, Query: url.Values{ //nolint:bodyclose // the caller does
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {w.reached},
		"timeoutSeconds": {strconv.Itoa(int(watchTime / time.Second))},
	}})
	if late.Stop(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	return &cancelCloser{resp.Body, func() { cancel(nil) }}, nil
}

type cancelCloser struct {
	io.ReadCloser
	cancel func()
}

func (c *cancelCloser) Close() error {
	c.cancel()
	return c.ReadCloser.Close()
}

// event is one line of a watch (Kubernetes API concepts, "Efficient detection of changes").
type event struct {
	Type   string `json:"type"`
	Object struct {
		Metadata identity `json:"metadata"`
		Code     int      `json:"code"` // of an ERROR, whose object is a Status
		Message  string   `json:"message"`
	} `json:"object"`
}

func (w *watch) take(e event) error {
	if e.Type == "ERROR" {
		return &kubeapi.StatusError{Code: e.Object.Code, Message: oneLine(e.Object.Message)}
	}
	m := e.Object.Metadata
	if m.ResourceVersion == "" {
		return fmt.Errorf("the API server sent an event of type %q that is about nothing", oneLine(e.Type))
	}
	w.reached = m.ResourceVersion
	if e.Type != "BOOKMARK" {
		w.changed(m.Name)
	}
	return nil
}

// meter ends a stream that goes on for too long without completing an event.
type meter struct {
	r    io.Reader
	left int
}

func (m *meter) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, fmt.Errorf("an event is larger than %d bytes", eventLimit)
	}
	n, err := m.r.Read(p[:min(len(p), m.left)])
	m.left -= n
	return n, err
}
