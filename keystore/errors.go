package keystore

import "fmt"

// ReasonRequiredError refuses a transition that is recorded with a reason and was given none. Step says which one.
type ReasonRequiredError struct {
	Step  string
	Force bool // only because the change passes closed gates
}

func (e *ReasonRequiredError) Error() string {
	if e.Force {
		return e.Step + ": passing a closed gate needs a reason"
	}
	return e.Step + ": a reason is needed; it is recorded"
}

// LastKeyError refuses to take the last key out of a key set in use.
type LastKeyError struct {
	Step   string // remove or revoke
	Key    KeyID
	KeySet Name
}

func (e *LastKeyError) Error() string {
	return fmt.Sprintf("%s key %s: it is the last key of %q", e.Step, e.Key, e.KeySet)
}

// GenerationError refuses to change a key set whose generation is so high that publishers take no change of it.
// [KeySet.Accept] leads back from there.
type GenerationError struct {
	KeySet     Name
	Generation int64
}

func (e *GenerationError) Error() string {
	return fmt.Sprintf("update key set %q: its generation %d is so high that keypostd takes no change of it; it must be accepted first", e.KeySet, e.Generation)
}

// PolicyWarning is a value of a policy, or the lack of one, that is allowed but seldom meant.
type PolicyWarning struct {
	Member  string // maxAge, relyingParties or tokenLifetime
	Message string
}
