// Package service is what the commands of keypost that run until SIGTERM have in common: where they listen, what they serve there, how
// they log, and how they end. Beside it is how other commands ask the admin listener of a running keypostd, mirror or watch.
package service

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/internal/admin"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
)

// CheckListen refuses what is not an address to listen on before anything is begun; empty means none.
func CheckListen(flag, address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return cli.Usagef("%s %q: give HOST:PORT or :PORT, such as 127.0.0.1:9091", flag, address)
	}
	return nil
}

// Admission returns what a keypostd with patterns for its issuerURLs admits, given as --issuer-url; every issuer URL without any.
func Admission(patterns []string, dev bool) (issuer.Admission, error) {
	all, err := issuer.ParsePatterns(patterns, dev)
	if err != nil {
		return issuer.Admission{}, cli.Usagef("--issuer-url: %v", err)
	}
	return issuer.Admission{Patterns: all, AnyURL: len(all) == 0, Dev: dev}, nil
}

// Admin is where such a command serves its metrics, those of the process, and its health.
type Admin struct {
	Address string
	Metrics prometheus.Collector
	Ready   func() error // as in admin.Pages
	Log     *zap.Logger
	Store   keystore.Reader // its documents are served to clients on this machine; nil for none
}

// document serves the document of a key set.
func (a Admin) document(w http.ResponseWriter, r *http.Request) {
	name, is := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, documents), documentSuffix)
	var doc []byte
	err := keystore.ErrNotFound
	if is && strings.HasPrefix(r.URL.Path, documents) && keystore.Name(name).Check() == nil {
		var s keystore.KeySet
		if s, _, err = a.Store.Load(r.Context(), keystore.Name(name)); err == nil {
			doc, err = keystore.Encode(s)
		}
	}
	if err != nil {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(doc) // the client may have gone away
}

// Listen binds the address.
func (a Admin) Listen(ctx context.Context) (*admin.Server, error) {
	registry := prometheus.NewRegistry()
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	for _, c := range []prometheus.Collector{a.Metrics, collectors.NewGoCollector(), process} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	pages := admin.Pages{Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), Ready: a.Ready}
	if a.Store != nil {
		pages.Rest = admin.Local(http.HandlerFunc(a.document), false)
	}
	s, err := admin.Listen(ctx, a.Address, pages, a.Log.Named("admin"))
	if err != nil {
		return nil, fmt.Errorf("open the admin listener: %w", err)
	}
	a.Log.Info("admin listener is up", zap.Stringer("address", s.Addr()))
	return s, nil
}

// Stamp is a time as metrics have it; 0 for never.
func Stamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// Truth is 1 while something is so, as metrics have it.
func Truth(is bool) float64 { return map[bool]float64{true: 1}[is] }

// lastWait is how long work may go on after its context has ended.
const lastWait = 3 * time.Second

// Until runs work, which ends soon after ctx. A write to a file system that hangs cannot be interrupted, and must not
// keep the process from ending: what it writes is whole or not there.
func Until(ctx context.Context, work func()) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		work()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return nil
	case <-time.After(lastWait):
		return fmt.Errorf("stop: reading or writing has not ended within %v", lastWait)
	}
}

// NewLogger writes a JSON line per event, as keypostd does.
func NewLogger(w io.Writer) *zap.Logger {
	e := zap.NewProductionEncoderConfig()
	e.EncodeTime = zapcore.RFC3339TimeEncoder
	e.EncodeDuration = zapcore.StringDurationEncoder
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(e), zapcore.Lock(zapcore.AddSync(text.LogWriter(w))), zapcore.InfoLevel))
}
