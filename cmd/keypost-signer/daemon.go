package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/internal/admin"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/signer"
	"github.com/keypost/keypost/issuer/signer/keyfiles"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
)

func newSigner(c config, log *zap.Logger) (*signer.Signer, error) {
	store, err := filestore.Open(c.Dir)
	if err != nil {
		return nil, err
	}
	return signer.New(signer.Config{Backend: store, Name: c.KeySet, Keys: keyfiles.Open(c.Keys).For, Log: log})
}

// serve runs until ctx is done and the calls under way have ended.
func serve(ctx context.Context, c config, stderr io.Writer) error {
	log := newLogger(stderr)
	s, err := newSigner(c, log)
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
	if err != nil {
		return err
	}
	socket, err := signer.Listen(ctx, c.Socket.Path, c.Socket.Abstract)
	if err != nil {
		return err
	}
	_ = s.Refresh(ctx, time.Now()) // the log has it; a kube-apiserver that starts asks again for a minute
	log.Info("serving", zap.String("socket", c.Socket.Path), zap.Stringer("admin", health.Addr()), zap.String("version", buildVersion()))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.Run(ctx); return nil })
	g.Go(func() error { return health.Serve(ctx) })
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
	if err := listKeys(ctx, c, "", stdout); err != nil {
		return err
	}
	s, err := newSigner(c, zap.NewNop())
	if err != nil {
		return err
	}
	if err := s.Refresh(ctx, time.Now()); err != nil {
		return err
	}
	if err := s.Ready(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "# key %s would sign\n", s.Signs())
	return err
}

// listKeys prints the keys that are held, or the public half of one.
func listKeys(ctx context.Context, c config, public string, stdout io.Writer) error {
	keys, err := keyfiles.Open(c.Keys).Keys(ctx)
	if err != nil {
		return err
	}
	if public != "" {
		return printPublic(keys, keystore.KeyID(public), stdout)
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KID\tALG\tFILE")
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%s\t%s\n", k.Public().ID(), k.Public().Alg(), k.File)
	}
	return w.Flush()
}

func printPublic(keys []keyfiles.Key, id keystore.KeyID, stdout io.Writer) error {
	for _, k := range keys {
		if k.Public().ID() != id {
			continue
		}
		der, err := x509.MarshalPKIXPublicKey(k.Public().Key())
		if err != nil {
			return err
		}
		return pem.Encode(stdout, &pem.Block{Type: "PUBLIC KEY", Bytes: der})
	}
	return fmt.Errorf("no key %s is held; list them with keypost-signer keys", id)
}
