package cli

import (
	"context"
	"errors"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/open"
)

// OpenObservations opens the place that --observations or KEYPOST_OBSERVATIONS names, to read.
func (f *Factory) OpenObservations(ctx context.Context) (*observation.Store, error) {
	return f.observations(ctx, open.URL.Backend)
}

// CreateObservations is OpenObservations to write. A directory is made if only that is missing.
func (f *Factory) CreateObservations(ctx context.Context) (*observation.Store, error) {
	return f.observations(ctx, open.URL.Create)
}

func (f *Factory) observations(ctx context.Context, opened func(open.URL, context.Context) (keystore.Backend, error)) (*observation.Store, error) {
	u, err := f.observationsURL()
	if err != nil {
		return nil, err
	}
	store, err := ParseStore(f.Store)
	if err != nil {
		return nil, err
	}
	if u, err = u.ForObservations(store); err != nil {
		return nil, WithHint(Usage(err), "give --observations another place, or set KEYPOST_OBSERVATIONS")
	}
	b, err := opened(u, ctx)
	if err != nil {
		return nil, err
	}
	return observation.NewStore(b), nil
}

func (f *Factory) observationsURL() (open.URL, error) {
	if f.Observations == "" {
		return open.URL{}, WithHint(Usage(errors.New("nothing names the place where looks are recorded")),
			"use --observations %s, or set KEYPOST_OBSERVATIONS", open.Forms)
	}
	return ParseStoreURL(f.Observations, "use --observations")
}
