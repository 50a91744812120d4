package provision

import "context"

// Verb says what an action does.
type Verb string

// The verbs.
const (
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
)

// Action is one change to one thing in the target account, not yet made.
type Action struct {
	Verb  Verb
	Thing string   // what sort of thing: "IAM OIDC identity provider", "IAM role"
	Name  string   // its ARN or name
	Diff  []string // what differs, a line each: "+ …" comes, "- …" goes

	// Done is what Do says if nothing has changed since the plan was made: a line for each call that writes, in the
	// words that scripts written for ccoctl look for.
	Done []string

	// Do makes the change and returns a line for each call that took effect, also when it fails half-way. It may be
	// called again after a failure, whether or not the failed call took effect.
	Do func(ctx context.Context) (said []string, err error)
}

// Stage is a set of actions that may be done side by side.
type Stage []Action

// Plan is what leads from what is there to what is wanted: stages one after another. A Plan without actions says that
// there is nothing to do. Making a Plan changes nothing.
type Plan struct {
	Stages []Stage
	Notes  []string // what is good to know, whether or not anything changes: a line each

	// Extra is what is there beyond what is wanted and stays: a line each. It is a difference, though not one that
	// Apply does anything about.
	Extra []string
}
