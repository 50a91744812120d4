package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/internal/admin"
	"github.com/keypost/keypost/internal/build"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/signer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
)

func newSigner(keys held, c config, log *zap.Logger) (*signer.Signer, error) {
	store, err := filestore.Open(c.Dir)
	if err != nil {
		return nil, err
	}
	if err := ownersOnly(c.Dir, "755"); err != nil {
		return nil, err
	}
	return signer.New(signer.Config{Backend: guarded{store, c.Dir}, Name: c.KeySet, Log: log, Keys: func(ctx context.Context) ([]signer.Key, error) {
		found, err := keys.list(ctx)
		all := make([]signer.Key, 0, len(found))
		for _, k := range found {
			all = append(all, k.Key)
		}
		return all, err
	}})
}

// guarded is a directory that only its owner may write to: anyone who writes there says which key signs.
type guarded struct {
	keystore.Backend
	dir string
}

// Get reads a key set unless somebody else may have written it.
func (g guarded) Get(ctx context.Context, n keystore.Name) ([]byte, keystore.Revision, error) {
	doc, revision, err := g.Backend.Get(ctx, n)
	if err == nil {
		err = errors.Join(ownersOnly(g.dir, "755"), ownersOnly(filepath.Join(g.dir, string(n)+".yaml"), "644"))
	}
	if err != nil {
		return nil, "", err
	}
	return doc, revision, nil
}

// ownersOnly returns an error if others than the owner of a path may write to it.
func ownersOnly(path, mode string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if p := info.Mode().Perm(); p&0o022 != 0 {
		return fmt.Errorf("others than its owner can write to %s (mode %04o), and would decide which key signs; run chmod %s on it", path, p, mode)
	}
	return nil
}

// serve runs until ctx is done and the calls under way have ended.
func serve(ctx context.Context, c config, stderr io.Writer) error {
	log := newLogger(stderr)
	keys, err := openKeys(ctx, c)
	if err != nil {
		return err
	}
	s, err := newSigner(keys, c, log)
	if err != nil {
		return err
	}
	metrics := prometheus.NewRegistry()
	for _, m := range []prometheus.Collector{s, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := metrics.Register(m); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	pages := admin.Pages{Metrics: promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}), Ready: s.Ready}
	health, err := admin.Listen(ctx, c.Admin.Address, pages, log.Named("admin"))
	if err != nil { // pods are to start without metrics too
		log.Error("metrics and health are not served", zap.Error(err))
	} else {
		log.Info("admin listener is up", zap.Stringer("address", health.Addr()))
	}
	socket, err := signer.Listen(ctx, c.Socket.Path)
	if err != nil {
		return err
	}
	log.Info("serving", zap.String("socket", c.Socket.Path), zap.String("version", build.Version()))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.Run(ctx); return nil })
	if health != nil {
		g.Go(func() error { return health.Serve(ctx) })
	}
	g.Go(func() error { return s.Serve(ctx, socket, signer.Callers{UIDs: c.Socket.UIDs, GIDs: c.Socket.GIDs}) })
	if err := g.Wait(); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

func newLogger(w io.Writer) *zap.Logger {
	e := zap.NewProductionEncoderConfig()
	e.EncodeTime = zapcore.RFC3339TimeEncoder
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(e), zapcore.Lock(zapcore.AddSync(text.LogWriter(w))), zapcore.InfoLevel))
}

// check reads what a start would read, and returns an error unless a key may sign.
func check(ctx context.Context, c config, stdout io.Writer) error {
	keys, err := openKeys(ctx, c)
	if err != nil {
		return err
	}
	if err := keys.print(ctx, stdout); err != nil {
		return err
	}
	s, err := newSigner(keys, c, zap.NewNop())
	if err != nil {
		return err
	}
	if err := s.Refresh(ctx, time.Now()); err != nil {
		return err
	}
	if err := s.Ready(); err != nil {
		return err
	}
	kid, reason := s.Signs()
	if reason != "" {
		_, err = fmt.Fprintf(stdout, "# warning: %s; is its file missing?\n", reason)
	}
	if err == nil {
		_, err = fmt.Fprintf(stdout, "# key %s would sign\n", kid)
	}
	return err
}

// listKeys prints the keys that are held, or the public half of one.
func listKeys(ctx context.Context, c config, public string, stdout io.Writer) error {
	keys, err := openKeys(ctx, c)
	if err != nil {
		return err
	}
	if public == "" {
		return keys.print(ctx, stdout)
	}
	all, err := keys.list(ctx)
	for _, k := range all {
		if string(k.Public().ID()) == public {
			_, err := io.WriteString(stdout, k.Public().PEM())
			return err
		}
	}
	return cmp.Or(err, fmt.Errorf("no key %s is held; list them with keypost-signer keys", public))
}
