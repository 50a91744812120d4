package listen

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
	"golang.org/x/sys/unix"

	"github.com/keypost/keypost/internal/text"
)

const (
	// lookEvery is how often the cache is looked at for what another replica has ordered.
	lookEvery = time.Minute
	// firstRetry and lastRetry bound the wait after an order that failed. Let's Encrypt takes five failed validations of a
	// host in an hour: 2 + 4 + 8 + 16 + 32 minutes make no sixth in the first one, and each later hour has one.
	// https://letsencrypt.org/docs/rate-limits
	firstRetry = 2 * time.Minute
	lastRetry  = time.Hour
)

// renewAt returns when a certificate that is valid between the two times is to be renewed: when a third of its life is left,
// at most 30 days, as autocert does, and up to a tenth of that earlier. The share differs between hosts and not between replicas,
// so that not all hosts are ordered at once, and the replica that comes first has renewed before the next one looks.
func renewAt(host string, notBefore, notAfter time.Time) time.Time {
	before := min(notAfter.Sub(notBefore)/3, 30*24*time.Hour)
	h := fnv.New32a()
	_, _ = h.Write([]byte(host)) // never fails
	return notAfter.Add(-before - before/10*time.Duration(h.Sum32()%100)/100)
}

// retryAfter returns how long to wait after so many failed orders in a row; asked is what the CA asked for, or 0.
func retryAfter(failures int, asked time.Duration) time.Duration {
	wait := lastRetry
	if failures <= 5 {
		wait = firstRetry << max(failures-1, 0)
	}
	return max(min(wait, lastRetry), asked)
}

// Watch orders each certificate that is missing or due, until ctx is done. It returns nil. Another replica's certificate is
// taken from the cache within lookEvery.
func (a *ACME) Watch(ctx context.Context, log *zap.Logger) error {
	var wait sync.WaitGroup
	for i := range a.hosts {
		wait.Go(func() { a.follow(ctx, i, log) })
	}
	wait.Wait()
	return nil
}

// follow keeps the certificate of one host fresh.
func (a *ACME) follow(ctx context.Context, i int, log *zap.Logger) {
	if a.inUse[i].Load() != nil {
		a.logTaken(log, i)
	}
	failures, next := 0, time.Time{}
	for {
		if a.reload(i, time.Now()) {
			a.logTaken(log, i)
			a.failing[i].Store(false)
			failures, next = 0, time.Time{}
		}
		if now := time.Now(); !now.Before(a.due(i)) && !now.Before(next) {
			asked, err := a.renewal(ctx, i, log)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				failures, next = 0, time.Time{}
			default:
				failures++
				wait := retryAfter(failures, asked)
				next = time.Now().Add(wait)
				log.Warn("TLS certificate not ordered, the previous one stays in use if there is one",
					zap.String("certificate", a.hosts[i]), zap.Error(err), zap.Duration("again in", wait))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(a.pause(i, next)):
		}
	}
}

// pause returns how long to wait before the cache is looked at or the next order is due, at most lookEvery.
func (a *ACME) pause(i int, next time.Time) time.Duration {
	at := a.due(i)
	if next.After(at) {
		at = next
	}
	return min(max(time.Until(at), time.Second), lookEvery)
}

// due returns when a certificate is to be ordered; the zero time while there is none.
func (a *ACME) due(i int) time.Time {
	c := a.inUse[i].Load()
	if c == nil {
		return time.Time{}
	}
	return renewAt(a.hosts[i], c.tls.Leaf.NotBefore, c.tls.Leaf.NotAfter)
}

// renew orders the certificate of a host, unless another replica has done so by the time that this one has the lock. asked is
// how long the CA wants to be left alone.
func (a *ACME) renew(ctx context.Context, i int, log *zap.Logger) (asked time.Duration, err error) {
	unlock, err := a.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if a.reload(i, time.Now()) && time.Now().Before(a.due(i)) {
		a.logTaken(log, i)
		a.failing[i].Store(false)
		return 0, nil
	}
	log.Info("ordering a TLS certificate", zap.String("certificate", a.hosts[i]))
	asked, err = a.orderOne(i)
	a.failing[i].Store(err != nil)
	if err != nil {
		a.ordered.WithLabelValues("failed").Inc()
		return asked, err
	}
	a.ordered.WithLabelValues("ok").Inc()
	a.logTaken(log, i)
	return 0, nil
}

// orderOne takes at most five minutes, a bound of autocert's. The caller has the lock.
func (a *ACME) orderOne(i int) (asked time.Duration, err error) {
	host := a.hosts[i]
	cache := &orderCache{Cache: a.cache, host: host}
	m, why := a.order(cache)
	_, err = m.GetCertificate(&tls.ClientHelloInfo{
		ServerName: host, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, // asks for an ECDSA certificate
	})
	if err != nil {
		var refused *acme.Error
		if errors.As(err, &refused) {
			asked, _ = acme.RateLimit(refused)
		}
		return asked, why.explain(fmt.Errorf("order a certificate for %s: %w", host, err))
	}
	if cache.err != nil {
		return 0, fmt.Errorf("keep the certificate for %s: %w", host, cache.err)
	}
	if !a.reload(i, time.Now()) {
		file := filepath.Join(a.dir, host)
		if _, err := loadPair(Pair{Cert: file, Key: file}, time.Now()); err != nil {
			return 0, fmt.Errorf("the CA's answer cannot be used: %w", err)
		}
		return 0, fmt.Errorf("the CA's certificate for %s expires no later than the one in use", host)
	}
	return 0, nil
}

// lock waits for the lock on the cache, so that of several replicas one makes the account and the order. The kernel frees it
// when its holder ends.
func (a *ACME) lock(ctx context.Context) (unlock func(), err error) {
	f, err := a.openLock()
	if err != nil {
		return nil, err
	}
	const again = 250 * time.Millisecond
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // which frees it
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock the certificate cache %s: %w", a.dir, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(again):
		}
	}
}

func (a *ACME) openLock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(a.dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the certificate cache: %w", err)
	}
	return f, nil
}

// orderCache hides the certificate that is to be renewed, or autocert would give it back instead of ordering. It notes an
// error of keeping the new one, which autocert drops: the next restart would order again.
type orderCache struct {
	autocert.Cache
	host string

	mu   sync.Mutex
	kept bool
	err  error
}

func (c *orderCache) Get(ctx context.Context, key string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key == c.host && !c.kept {
		return nil, autocert.ErrCacheMiss
	}
	return c.Cache.Get(ctx, key)
}

func (c *orderCache) Put(ctx context.Context, key string, data []byte) error {
	err := c.Cache.Put(ctx, key, data)
	c.mu.Lock()
	defer c.mu.Unlock()
	if key == c.host {
		c.kept, c.err = true, err
	}
	return err
}

// quietCache gives no error but ErrCacheMiss: autocert shows others to the client, with the path in them.
type quietCache struct{ autocert.Cache }

func (c quietCache) Get(ctx context.Context, key string) ([]byte, error) {
	data, err := c.Cache.Get(ctx, key)
	if err != nil {
		return nil, autocert.ErrCacheMiss
	}
	return data, nil
}

// reasons notes why the CA could not validate a host. autocert tries the next challenge then, and in the end says only that
// there is no other one.
type reasons struct {
	next http.RoundTripper

	mu    sync.Mutex
	found []string
}

// maxAnswer bounds what is read of an answer of the CA, in bytes, and maxReason what is shown of it, in characters.
const (
	maxAnswer = 1 << 20
	maxReason = 500
)

func (r *reasons) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return resp, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	_ = resp.Body.Close() // it was read
	if err != nil {
		return nil, err
	}
	r.note(body)
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp, nil
}

// note keeps the error of each challenge of an authorization (RFC 8555, sections 7.1.4 and 8).
func (r *reasons) note(body []byte) {
	var authorization struct {
		Challenges []struct {
			Type  string `json:"type"`
			Error *struct {
				Detail string `json:"detail"`
			} `json:"error"`
		} `json:"challenges"`
	}
	if json.Unmarshal(body, &authorization) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range authorization.Challenges {
		if c.Error == nil {
			continue
		}
		reason := fmt.Sprintf("%s: %s", text.OneLine(c.Type, 50), text.OneLine(c.Error.Detail, maxReason))
		if !slices.Contains(r.found, reason) {
			r.found = append(r.found, reason)
		}
	}
}

// explain adds the reasons to an error.
func (r *reasons) explain(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.found) == 0 {
		return errors.New(text.OneLine(err.Error(), 2*maxReason)) // much of it is the CA's own text
	}
	return fmt.Errorf("%s; the CA says: %s", text.OneLine(err.Error(), 2*maxReason), strings.Join(r.found, "; "))
}
