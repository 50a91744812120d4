package fakeazure

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

// operation is a change that ends later.
type operation struct {
	id     string
	ready  time.Time // not done before
	polls  int       // not done before it was asked for so many times more
	done   bool
	change func(world) world
	result func(world) any // the answer when it is done; nil: none
}

// start begins a change: 202, with the place to ask for it
// (https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations).
func (q *request) start(change func(world) world, result func(world) any) (answer, error) {
	op := operation{id: guid("operation", q.path, q.now.String(), strconv.Itoa(q.serial)), ready: q.now.Add(q.OperationDelay), polls: q.OperationPolls,
		change: change, result: result}
	q.world.operations = fakecloud.With(q.world.operations, op.id, op)
	return q.pending(op)
}

func (q *request) pending(op operation) (answer, error) {
	a := answer{status: http.StatusAccepted, header: map[string]string{
		"Location": q.at("/subscriptions/" + q.vars["subscription"] + "/operationresults/" + op.id + "?api-version=2021-04-01")}}
	if op.polls > 0 || op.ready.After(q.now) {
		a.header["Retry-After"] = seconds(op.ready.Sub(q.now))
	}
	return a, nil
}

// settled makes the changes whose time has come.
func (w world) settled(now time.Time) (world, bool) {
	changed := false
	for id, op := range w.operations {
		if op.done || op.polls > 0 || now.Before(op.ready) {
			continue
		}
		w = op.change(w)
		op.done, changed = true, true
		w.operations = fakecloud.With(w.operations, id, op)
	}
	return w, changed
}

// getOperation counts as a look.
func getOperation(q *request) (answer, error) {
	op, ok := q.world.operations[strings.ToLower(q.vars["operation"])]
	if !ok {
		return answer{}, notFound("NotFound", "The operation '%s' could not be found.", q.vars["operation"])
	}
	if op.polls > 0 {
		op.polls--
		q.world.operations = fakecloud.With(q.world.operations, op.id, op)
		q.world, _ = q.world.settled(q.now)
		op = q.world.operations[op.id]
	}
	if !op.done {
		return q.pending(op)
	}
	a := answer{status: http.StatusOK}
	if op.result != nil {
		a.body = op.result(q.world)
	}
	return a, nil
}
