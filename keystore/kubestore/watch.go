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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/keystore"
)

// A watch ends every few minutes by agreement, so that it moves to another API server in time and a dead connection
// is noticed. The next one goes on from there, without a report.
const (
	watchTime  = 5 * time.Minute
	watchGrace = 30 * time.Second
)

// Watch calls changed once when it has asked for the state that it begins with, since changes before that were not seen, and then with the name of
// every key set that changes or vanishes. It returns an error when the connection is cut, when the API server has
// forgotten the state that the watch had reached (410), and when it may watch no more.
func (s *Backend) Watch(ctx context.Context, changed func(...keystore.Name)) error {
	err := s.watch(ctx, changed)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("watch %s in %s: %w", s.many, s.place, s.advise(err, "get, list and watch"))
}

func (s *Backend) watch(ctx context.Context, changed func(...keystore.Name)) error {
	state, err := s.page(ctx, 1, "")
	if err != nil {
		return err
	}
	changed()
	for from := state.ResourceVersion; ; {
		began := time.Now()
		if from, err = s.follow(ctx, from, changed); err != nil {
			return err
		}
		if time.Since(began) < s.shortest {
			return errors.New("the API server, or something before it, ends the watch at once")
		}
	}
}

// follow reports changes since a resourceVersion until the API server ends the watch as agreed. It returns the one up to which
// everything was seen.
func (s *Backend) follow(ctx context.Context, from string, changed func(...keystore.Name)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, watchTime+watchGrace)
	defer cancel()
	resp, err := s.client.Send(ctx, kubeapi.Request{Method: http.MethodGet, Path: s.collection, Accept: metadataOne, Query: url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {from}, "timeoutSeconds": {strconv.Itoa(int(watchTime / time.Second))},
	}})
	if err != nil {
		return from, err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	for events := json.NewDecoder(resp.Body); ; {
		var e event
		err := events.Decode(&e)
		switch at := e.Object.ObjectMeta; {
		case errors.Is(err, io.EOF):
			return from, nil
		case err != nil:
			return from, fmt.Errorf("the watch was cut: %w", kubeapi.Cause(err))
		case e.Type == "ERROR":
			return from, &kubeapi.StatusError{Code: e.Object.Code, Message: oneLine(e.Object.Message)}
		case at.ResourceVersion == "":
			return from, fmt.Errorf("the API server sent an event of type %q that is about nothing", oneLine(e.Type))
		default:
			if from = at.ResourceVersion; e.Type != "BOOKMARK" {
				changed(keystore.Name(at.Name))
			}
		}
	}
}

// event is one line of a watch (Kubernetes API concepts, "Efficient detection of changes").
type event struct {
	Type   string `json:"type"`
	Object struct {
		metav1.ObjectMeta `json:"metadata"`
		Code              int    `json:"code"` // of an ERROR, whose object is a Status
		Message           string `json:"message"`
	} `json:"object"`
}
