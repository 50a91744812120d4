package kubestore

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/keystore"
)

// Status is what the status of a KeySet object says of one generation of the key set.
type Status struct {
	Generation int64 // of the key set, spec.generation
	Conditions []Condition
}

// Condition is a condition as Kubernetes objects have them (metav1.Condition). Type and Reason are words in CamelCase.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"` // True, False or Unknown
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Of      int64     `json:"observedGeneration,omitempty"` // set by SetStatus: metadata.generation
	Since   time.Time `json:"lastTransitionTime"`           // set by SetStatus
}

// objectStatus is the member status of an object. observedGeneration is metadata.generation, which kubectl wait, Argo CD and
// Flux compare; generation is the key set's own.
type objectStatus struct {
	ObservedGeneration int64       `json:"observedGeneration"`
	Generation         int64       `json:"generation"`
	Conditions         []Condition `json:"conditions"`
}

// SetStatus writes the status of an object unless it says the same, and reports whether it says it now. It goes through the subresource status, as a
// merge patch: the right to patch keysets/status, beside get on keysets, is enough, and changes no key set. One that
// has another generation by now, or is gone, is left alone without an error, and so is one that somebody writes to meanwhile. The status must not change without need, since each write is a new revision of the key set.
func (s *Backend) SetStatus(ctx context.Context, n keystore.Name, to Status, now time.Time) (done bool, err error) {
	body, err := s.api.call(ctx, kubeapi.Request{Method: http.MethodGet, Path: s.api.object(n)}, objectLimit)
	if s.api.isAbsent(err, n) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s %q in %s: %w", s.api.one, n, s.api.place, s.refusal(s.api.advise(err, "get")))
	}
	var o struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
			Generation      int64  `json:"generation"`
		} `json:"metadata"`
		Spec struct {
			Generation int64 `json:"generation"`
		} `json:"spec"`
		Status objectStatus `json:"status"`
	}
	if err := json.Unmarshal(body, &o); err != nil {
		return false, fmt.Errorf("read %s %q in %s: %s", s.api.one, n, s.api.place, oneLine(err.Error()))
	}
	if o.Spec.Generation != to.Generation {
		return false, nil
	}
	ours := slices.Clone(to.Conditions)
	for i := range ours {
		ours[i].Since, ours[i].Of = now.UTC().Truncate(time.Second), o.Metadata.Generation
	}
	next := objectStatus{o.Metadata.Generation, to.Generation, merged(o.Status.Conditions, ours)}
	if reflect.DeepEqual(next, o.Status) {
		return true, nil
	}
	patch, err := marshal(map[string]any{"metadata": map[string]string{"resourceVersion": o.Metadata.ResourceVersion}, "status": next})
	if err != nil {
		return false, err
	}
	_, err = s.api.call(ctx, kubeapi.Request{
		Method: http.MethodPatch, Path: s.api.object(n) + "/status", Body: patch, Patch: true, Query: url.Values{"fieldManager": {"keypost-watch"}},
	}, objectLimit)
	if s.api.isAbsent(err, n) || kubeapi.IsStatus(err, http.StatusConflict) {
		return false, nil
	}
	if err != nil {
		a := s.api
		a.resource += "/status"
		return false, fmt.Errorf("write the status of %s %q in %s: %w", s.api.one, n, s.api.place, s.refusal(a.advise(err, "patch")))
	}
	return true, nil
}

// merged returns the conditions with ours in the place of those of the same type. Others stay: they are somebody else's.
func merged(was, ours []Condition) []Condition {
	all := slices.Clone(was)
	for _, c := range ours {
		i := slices.IndexFunc(all, func(o Condition) bool { return o.Type == c.Type })
		if i < 0 {
			all = append(all, c)
			continue
		}
		if all[i].Status == c.Status {
			c.Since = all[i].Since
		}
		all[i] = c
	}
	return all
}
