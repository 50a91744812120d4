package listen

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/crypto/acme"

	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/listen/internal/chain"
	"github.com/keypost/keypost/issuer/listen/internal/claim"
	"github.com/keypost/keypost/issuer/listen/internal/exchange"
	"github.com/keypost/keypost/issuer/listen/internal/renewal"
)

const (
	// lookEvery is how often the cache is looked at for what another replica has ordered.
	lookEvery = time.Minute
	// firstRetry and lastRetry bound the wait after an order that failed. Let's Encrypt takes five failed validations of a
	// host in an hour: 2 + 4 + 8 + 16 + 32 minutes make no sixth order in the first one, and each later hour has one. An order costs one
	// validation at most (see attempts.challenge). https://letsencrypt.org/docs/rate-limits
	firstRetry = 2 * time.Minute
	lastRetry  = time.Hour
	// longestWait bounds what a CA may ask for: a wrong header must not keep a certificate from being renewed. The longest window of
	// Let's Encrypt is a week, and a question a day costs nobody anything.
	longestWait = 24 * time.Hour
	// orderTime is how long the Manager of an order may ask the CA: five minutes for the order and five to clean up, by autocert.
	orderTime = 10 * time.Minute
	// lockPatience is how long another process may have the lock: a few orders of five minutes at most, a bound of autocert's. Giving up
	// earlier would free nobody, and who has given up comes back later than who waits; that it takes long is told after lookEvery.
	lockPatience = 15 * time.Minute
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
	return max(min(wait, lastRetry), min(asked, longestWait))
}

// better reports whether fresh is to take the place of old: it is to be renewed later, or it expires later where both are to be
// renewed already. So a CA's change to certificates that live shorter is followed, and all replicas judge alike.
func better(host string, fresh, old *chain.Chain, now time.Time) bool {
	f, o := due(host, fresh), due(host, old)
	if !f.After(now) && !o.After(now) {
		return fresh.NotAfter.After(old.NotAfter)
	}
	return f.After(o)
}

// due returns when a certificate is to be renewed. The first expiry in the chain counts: an intermediate may expire before the leaf.
func due(host string, c *chain.Chain) time.Time {
	return renewAt(host, c.TLS.Leaf.NotBefore, c.NotAfter)
}

// attempts is what is known of the orders of one host: how many have failed in a row, and when the next one may be made. Those that
// failed are noted in the cache, for other replicas and for the next start: CAs count by host and not by process.
type attempts struct {
	Failed int       `json:"failed"`
	Next   time.Time `json:"next"`
	Why    string    `json:"why,omitempty"`   // the latest one failed
	Tried  string    `json:"tried,omitempty"` // the type of challenge that the CA has found no good answer to; empty: none
}

// The types of challenges that autocert answers (RFC 8737, section 3; RFC 8555, section 8.3).
const (
	tlsALPN01 = "tls-alpn-01"
	http01    = "http-01"
)

// challenge returns the type of challenge for the next order. An order has one: autocert would answer one of each type, and the CA counts
// each that fails, so that with both types half as many orders would use its limit up. Where http-01 has been set up it comes first, since
// that is mostly done where tls-alpn-01 cannot work, and then they take turns.
func (p attempts) challenge(offered bool) string {
	if offered && p.Tried != http01 {
		return http01
	}
	return tlsALPN01
}

// another returns the attempts after one more that failed; asked is as in retryAfter.
func (p attempts) another(now time.Time, asked time.Duration) attempts {
	return attempts{Failed: p.Failed + 1, Next: now.Add(retryAfter(p.Failed+1, asked)), Tried: p.Tried}
}

// unasked returns the attempts after one that never came to the CA. No CA counts it as a failure, and whoever makes room on a disk or ends
// a process that has hung waits for nothing but the next look.
func (p attempts) unasked(now time.Time) attempts {
	p.Next = now.Add(lookEvery)
	return p
}

// heldBack reports whether a replica that knows of past has to wait for what another one has noted. It need not for a single failure,
// so that a start with a corrected configuration orders at once; that makes no sixth order in the first hour.
func (p attempts) heldBack(noted attempts, now time.Time) bool {
	return noted.Next.After(now) && (noted.Failed > 1 || p.Failed > 0)
}

// Watch orders each certificate that is missing or due, until ctx is done. It returns nil. Another replica's certificate is
// taken from the cache within lookEvery.
func (a *ACME) Watch(ctx context.Context, log *zap.Logger) error {
	var wait sync.WaitGroup
	wait.Go(func() { a.watchCache(ctx, log) })
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
	var past attempts
	var told repetition
	for {
		if a.take(i, log) {
			past = attempts{}
		}
		if now := time.Now(); !now.Before(a.due(i)) && !now.Before(past.Next) {
			next, err := a.renew(ctx, i, past, log)
			if ctx.Err() != nil {
				return
			}
			news := told.news(err, next.Failed > past.Failed)
			past = next
			a.failing[i].Store(err != nil || past.Failed > 0)
			if err != nil {
				a.ordered.WithLabelValues("failed").Inc()
			}
			if news {
				log.Warn("TLS certificate not ordered, the previous one stays in use if there is one",
					zap.String("certificate", a.hosts[i]), zap.Error(err), zap.Duration("again_in", time.Until(past.Next).Round(time.Second)))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(a.pause(i, past.Next)):
		}
	}
}

// repetition keeps one error from being logged with every look.
type repetition struct {
	text  string
	since time.Time
}

// news reports whether an error is to be logged: the CA has counted it, it is another one than before, or that was lastRetry ago.
func (r *repetition) news(err error, counted bool) bool {
	if err == nil {
		*r = repetition{}
		return false
	}
	text := err.Error()
	if !counted && text == r.text && time.Since(r.since) < lastRetry {
		return false
	}
	*r = repetition{text, time.Now()}
	return true
}

// take takes into use what another replica has put into the cache. It reports whether there was something.
func (a *ACME) take(i int, log *zap.Logger) bool {
	if !a.reload(i, time.Now()) {
		return false
	}
	a.failing[i].Store(false)
	a.logTaken(log, i)
	return true
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
	return due(a.hosts[i], c)
}

// renew orders the certificate of a host, unless another replica has done so by the time that this one has the lock, or has failed
// to. It returns the attempts as they are afterwards.
func (a *ACME) renew(ctx context.Context, i int, past attempts, log *zap.Logger) (attempts, error) {
	began := time.Now()
	unlock, err := a.lock(ctx)
	for errors.Is(err, claim.ErrBusy) && time.Since(began) < lockPatience {
		if a.take(i, log) {
			return attempts{}, nil
		}
		if !errors.Is(err, errOwn) && !a.failing[i].Swap(true) {
			log.Warn("TLS certificate not ordered while another process has the lock of the certificate cache, end it if it does nothing any more",
				zap.String("certificate", a.hosts[i]), zap.String("file", filepath.Join(a.dir, lockFile)), zap.Error(err))
		}
		unlock, err = a.lock(ctx)
	}
	if err != nil {
		return past.unasked(time.Now()), err
	}
	defer unlock()
	if a.take(i, log) {
		return attempts{}, nil
	}
	noted := a.noted(i, time.Now())
	if past.heldBack(noted, time.Now()) {
		log.Info("TLS certificate not ordered yet, since earlier orders have failed; once what they failed for is repaired, remove the file and restart", zap.String("certificate", a.hosts[i]),
			zap.Int("failed", noted.Failed), zap.Duration("again_in", time.Until(noted.Next).Round(time.Second)), zap.String("file", a.note(i)), zap.String("why", noted.Why))
		return noted, nil
	}
	past.Failed = max(past.Failed, noted.Failed)
	past.Tried = cmp.Or(noted.Tried, past.Tried)
	next := past.another(time.Now(), 0)
	if err := a.CheckAccount(); err != nil {
		return past.unasked(time.Now()), fmt.Errorf("the CA is not asked: %w", err)
	}
	if err := a.prove(i, next); err != nil {
		return past.unasked(time.Now()), fmt.Errorf("the CA is not asked, since the certificate cache cannot be written: %w", explained(err))
	}
	log.Info("ordering a TLS certificate", zap.String("certificate", a.hosts[i]))
	challenge := past.challenge(a.http01)
	asked, err := a.ask(i, challenge)
	if errors.Is(err, exchange.ErrNoDirectory) {
		return past.unasked(time.Now()), errors.Join(err, a.putNote(i, noted))
	}
	if err != nil {
		if errors.Is(err, exchange.ErrNotValidated) { // else the CA was away, say: then the other type is no better
			past.Tried = challenge
		}
		next = past.another(time.Now(), asked)
		next.Why = text.OneLine(err.Error(), exchange.MaxReason)
		return next, errors.Join(err, a.putNote(i, next))
	}
	a.ordered.WithLabelValues("ok").Inc()
	a.logTaken(log, i)
	_ = a.cache.Delete(context.Background(), filepath.Base(a.note(i))) // one that stays is soon too old to be believed
	return attempts{Next: time.Now().Add(asked)}, nil
}

// note is the file with the attempts of a host.
func (a *ACME) note(i int) string { return filepath.Join(a.dir, a.hosts[i]+"+failed") }

// putNote keeps attempts for other replicas and the next start; none that failed leave no file.
func (a *ACME) putNote(i int, p attempts) error {
	if p.Failed == 0 {
		return a.cache.Delete(context.Background(), filepath.Base(a.note(i)))
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return a.cache.Put(context.Background(), filepath.Base(a.note(i)), text)
}

// noted returns what the cache tells of the attempts of a host; nothing where that cannot be read or cannot be true, for a wrong clock
// or a stranger's file must not keep a certificate from being renewed.
func (a *ACME) noted(i int, now time.Time) attempts {
	file := a.note(i)
	line, err := hang.Await(context.Background(), &a.hangs, file, func() ([]byte, error) { return regular.Read(file, maxNote) })
	var p attempts
	if err != nil || json.Unmarshal(line, &p) != nil || p.Failed < 1 || p.Failed > maxFailed || now.Sub(p.Next).Abs() > longestWait+lastRetry {
		return attempts{}
	}
	p.Why = text.OneLine(p.Why, exchange.MaxReason) // whoever may write to the cache wrote it
	return p
}

// maxNote bounds a file with attempts, in bytes, and maxFailed what it may tell.
const (
	maxNote   = 4 << 10
	maxFailed = 1 << 20
)

// orderOne takes at most five minutes, a bound of autocert's. The caller has the lock. asked is how long the CA is to be left alone.
func (a *ACME) orderOne(i int, challenge string) (asked time.Duration, err error) {
	host := a.hosts[i]
	cache := &renewal.Cache{Cache: a.cache, Host: host}
	m, why := a.order(cache, challenge)
	_, err = m.GetCertificate(&tls.ClientHelloInfo{
		ServerName: host, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, // asks for an ECDSA certificate
	})
	if err != nil {
		var refused *acme.Error
		if errors.As(err, &refused) {
			asked, _ = acme.RateLimit(refused)
		}
		return asked, why.Explain(fmt.Errorf("order a certificate for %s: %w", host, err))
	}
	text := cache.Ordered()
	pair, err := tls.X509KeyPair(text, text)
	var fresh *chain.Chain
	if err == nil {
		fresh, err = chain.Check(pair, time.Now())
	}
	if err != nil {
		return 0, fmt.Errorf("the CA's answer for %s cannot be used: %w", host, err)
	}
	if old := a.inUse[i].Load(); old != nil && !fresh.NotAfter.After(old.NotAfter) {
		// It gains no time, and the next one may gain none either: as an intermediate that dies gives less each time.
		left := time.Until(old.NotAfter) / 3
		if !better(host, fresh, old, time.Now()) {
			return min(longestWait, left), fmt.Errorf("the CA's new certificate for %s is to be renewed at once and expires no later than the one in use, which stays; ask the CA why", host)
		}
		asked = min(lastRetry, left)
	}
	if err := a.cache.Put(context.Background(), host, text); err != nil {
		return 0, fmt.Errorf("keep the certificate for %s: %w", host, err)
	}
	a.inUse[i].Store(fresh)
	return asked, nil
}

// spare is more than an account, the answer to a challenge and a certificate take, in bytes.
const spare = 64 << 10

// prove writes to the cache. On a full disk the CA would find no answer to its challenge, say only that it could not connect, and
// count one more failure. next is noted before the order: a process that is killed meanwhile, and started again, has asked too.
func (a *ACME) prove(i int, next attempts) error {
	const name = ".space"
	ctx := context.Background()
	err := a.cache.Put(ctx, name, make([]byte, spare))
	if err = errors.Join(err, a.cache.Delete(ctx, name)); err != nil {
		return err
	}
	return a.putNote(i, next)
}

// errOwn means that this process has the lock, for another host.
var errOwn = errors.New("the certificate of another host is being ordered")

// lock waits for the lock on the cache, so that of several replicas one makes the account and the order. After lookEvery it returns
// claim.ErrBusy and who has it: the cache is to be looked at meanwhile.
func (a *ACME) lock(ctx context.Context) (unlock func(), err error) {
	l, err := hang.Await(ctx, &a.hangs, a.dir, a.openLock)
	if err != nil {
		return nil, err
	}
	err = l.Wait(ctx, lookEvery)
	if err == nil {
		said := l.Said()
		a.holds.Store(&said)
		return func() { _ = l.Close() }, nil
	}
	if mine := a.holds.Load(); mine != nil && *mine == l.Holder() {
		return nil, errors.Join(err, errOwn, l.Close())
	}
	return nil, errors.Join(fmt.Errorf("lock the certificate cache, which %s may have: %w", l.Holder(), err), l.Close())
}

const lockFile = ".lock" // in the cache

func (a *ACME) openLock() (*claim.Lock, error) {
	l, err := claim.Open(filepath.Join(a.dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("open the lock of the certificate cache: %w", err)
	}
	return l, nil
}
