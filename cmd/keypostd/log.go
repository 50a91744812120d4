package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/keypost/keypost/internal/text"
)

func (l logConfig) level() (zapcore.Level, error) {
	level, err := zapcore.ParseLevel(l.Level)
	if err != nil || level > zapcore.ErrorLevel {
		return 0, fmt.Errorf("log.level is %q; it must be debug, info, warn or error", l.Level)
	}
	if l.Format != "json" && l.Format != "console" {
		return 0, fmt.Errorf("log.format is %q; it must be json or console", l.Format)
	}
	return level, nil
}

func newLogger(l logConfig, w io.Writer) (*zap.Logger, error) {
	level, err := l.level()
	if err != nil {
		return nil, err
	}
	e := zap.NewProductionEncoderConfig()
	e.EncodeTime = zapcore.RFC3339TimeEncoder
	e.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(e)
	if l.Format == "console" {
		encoder = zapcore.NewConsoleEncoder(e)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(text.LogWriter(w))), level)), nil
}

// accessLog writes a line per request: the first 100 of each second, then every 100th. A client's word is cut short,
// since it can be 8 KiB long, and zap quotes control characters.
func accessLog(log *zap.Logger, next http.Handler) http.Handler {
	log = log.Named("access").WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Second, 100, 100)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		began := time.Now()
		next.ServeHTTP(rec, r)
		log.Info("request", zap.String("client", r.RemoteAddr), zap.String("method", cut(r.Method)), zap.String("host", cut(r.Host)),
			zap.String("path", cut(r.URL.EscapedPath())), zap.Int("status", rec.status), zap.String("protocol", r.Proto), zap.Duration("took", time.Since(began)))
	})
}

func cut(s string) string {
	if len(s) > 256 {
		return s[:256] + "…"
	}
	return s
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}
