package upload

import (
	"context"
	"errors"
	"time"

	"github.com/keypost/keypost/keystore"
)

// Look records what the relying party that a policy names was read to hold, and changes nothing there: whoever replaces that by another
// way than [Uploader.Sync] looks first, since whose keys were there is not to be seen afterwards. After an error Result has the keys that
// the store never had all the same, unless it is a [*RefusedError].
func (u Uploader) Look(ctx context.Context, s keystore.KeySet, party string, seen Reading) (Result, error) {
	r := run{Uploader: u, to: looked(seen), Result: Result{Party: party}}
	_, err := r.read(ctx, s, time.Time{})
	return r.Result, err
}

// looked is a copy that was read.
type looked Reading

func (looked) Upload(context.Context, []byte) error {
	return errors.New("a copy that is only looked at takes no upload")
}

func (l looked) Read(context.Context) (Reading, error) { return Reading(l), nil }
