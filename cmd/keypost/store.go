package main

import (
	"context"
	"errors"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/open"
)

// openStore opens the store that --store or KEYPOST_STORE names.
func (a *app) openStore(ctx context.Context) (*keystore.Store, error) {
	u, err := parsePlace(a.store)
	if err != nil {
		return nil, err
	}
	return opened(u.Backend(ctx))
}

// openToWrite is openStore for a command that changes key sets, and remembers which.
func (a *app) openToWrite(ctx context.Context) (*keystore.Store, error) {
	st, err := a.openStore(ctx)
	if err != nil {
		return nil, err
	}
	return a.noted(st), nil
}

// createStore is openToWrite, and makes a file store's directory if only that is missing.
func (a *app) createStore(ctx context.Context) (*keystore.Store, error) {
	u, err := parsePlace(a.store)
	if err != nil {
		return nil, err
	}
	st, err := opened(u.Create(ctx))
	if err != nil {
		return nil, err
	}
	return a.noted(st), nil
}

func opened(b keystore.Backend, err error) (*keystore.Store, error) {
	missing, is := errors.AsType[*open.MissingDirError](err)
	switch {
	case is && missing.Parent != "":
		return nil, withHint(err, "mkdir -p %s, or mount what holds it", quoted(missing.Parent))
	case is:
		return nil, withHint(err, "mount what holds it; for a new store, keypost issuer add makes it")
	case err != nil:
		return nil, err
	}
	return keystore.NewStore(b), nil
}

// parsePlace reads the URL of --store; what is wrong with it is an error of usage.
func parsePlace(raw string) (open.URL, error) { return parseStoreURL(raw, "use --store") }

// parseStoreURL reads a store's URL; use is what a hint puts before a better one.
func parseStoreURL(raw, use string) (open.URL, error) {
	u, err := open.Parse(raw)
	if err == nil {
		return u, nil
	}
	wrong, _ := errors.AsType[*open.URLError](err)
	err = &usageError{err}
	switch {
	case errors.Is(err, open.ErrNone):
		err = withHint(err, "%s %s, or set KEYPOST_STORE", use, open.Forms)
	case wrong != nil && wrong.Instead != "":
		err = withHint(err, "%s %s", use, quoted(wrong.Instead))
	case wrong != nil && wrong.Form:
		err = withHint(err, "%s %s", use, open.Forms)
	}
	return open.URL{}, err
}
