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
	return f.observations(func(u, store open.URL) (keystore.Backend, error) { return u.Observations(ctx, store) })
}

// CreateObservations is OpenObservations to write. A directory is made if only that is missing.
func (f *Factory) CreateObservations(ctx context.Context) (*observation.Store, error) {
	return f.observations(func(u, store open.URL) (keystore.Backend, error) { return u.CreateObservations(ctx, store) })
}

func (f *Factory) observations(opened func(u, store open.URL) (keystore.Backend, error)) (*observation.Store, error) {
	u, err := f.observationsURL()
	if err != nil {
		return nil, err
	}
	store, err := ParseStore(f.Store)
	if err != nil {
		return nil, err
	}
	if err := u.CheckObservations(store); err != nil {
		return nil, WithHint(Usage(err), "give --observations another place, or set KEYPOST_OBSERVATIONS")
	}
	b, err := opened(u, store)
	if err != nil {
		return nil, err
	}
	return observation.NewStore(b), nil
}

func (f *Factory) observationsURL() (open.URL, error) {
	if f.Observations == "" {
		return open.URL{}, WithHint(Usage(errors.New("nothing names the place where looks are recorded")),
			"use --observations %s, or set KEYPOST_OBSERVATIONS", open.ObservationForms)
	}
	return ParseStoreURL(f.Observations, "use --observations")
}
