package fakegcp

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// operation is a change of a pool or a provider that is under way. Until it is done, nobody sees the change.
type operation struct {
	name    string
	ready   time.Time // not done before
	polls   int       // not done before it was asked for so many times more
	done    bool
	change  func(world) world
	subject func(world) any // what the change is about, for the answer
	kind    string          // the type of that
}

// Google's own names of what operations answer with.
const (
	poolType     = "type.googleapis.com/google.iam.v1.WorkloadIdentityPool"
	providerType = "type.googleapis.com/google.iam.v1.WorkloadIdentityPoolProvider"
)

// start begins a change of what name names, a resource without "projects/N/…" in front of its operations.
func (q *request) start(name string, op operation) any {
	op.name = fmt.Sprintf("%s/operations/a%017d", name, q.serial)
	op.ready, op.polls = q.now.Add(q.OperationDelay), q.OperationPolls
	q.world.operations = append(slices.Clip(q.world.operations), op)
	q.world = q.world.settled(q.now)
	i := slices.IndexFunc(q.world.operations, func(o operation) bool { return o.name == op.name })
	return q.world.operations[i].answer(q.world)
}

// settled makes the changes whose time has come, in the order in which they were asked for.
func (w world) settled(now time.Time) world {
	for i, op := range w.operations {
		if op.done || op.polls > 0 || now.Before(op.ready) {
			continue
		}
		w = op.change(w)
		w.operations = slices.Clone(w.operations)
		w.operations[i].done = true
	}
	return w
}

// answer is the operation as IAM describes it.
func (op operation) answer(w world) any {
	type described struct {
		Name     string         `json:"name"`
		Metadata map[string]any `json:"metadata,omitempty"`
		Done     bool           `json:"done,omitempty"`
		Response map[string]any `json:"response,omitempty"`
	}
	d := described{Name: op.name, Done: op.done, Metadata: map[string]any{"@type": op.kind + "OperationMetadata"}}
	if op.done {
		d.Response = object(op.subject(w))
		d.Response["@type"] = op.kind
	}
	return d
}

// pending reports whether a change of a resource is under way.
func (w world) pending(name string) bool {
	return slices.ContainsFunc(w.operations, func(op operation) bool {
		return !op.done && strings.HasPrefix(op.name, name+"/operations/")
	})
}

// getOperation counts as a look: that is why it is a write.
func getOperation(q *request) (any, error) {
	name := strings.TrimPrefix(q.path, "/v1/")
	parts := strings.Split(name, "/")
	parts[1] = q.Number
	name = strings.Join(parts, "/")
	i := slices.IndexFunc(q.world.operations, func(op operation) bool { return op.name == name })
	if i < 0 {
		return nil, absent()
	}
	if q.world.operations[i].polls > 0 {
		q.world.operations = slices.Clone(q.world.operations)
		q.world.operations[i].polls--
		q.world = q.world.settled(q.now)
	}
	return q.world.operations[i].answer(q.world), nil
}
