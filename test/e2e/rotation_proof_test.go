//go:build e2e

package e2e

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	programs "github.com/keypost/keypost/test/process"
)

// terms are what a key set of the proof declares, and how its tokens are made and verified. A development key set adds five
// seconds for convergence.
type terms struct {
	maxAge, swr, sie time.Duration
	lifetime         time.Duration // of tokens
	every            time.Duration // a server makes one
	again            time.Duration // each relying party verifies it, and just before its end
}

// The shortest terms, by which a key may sign 25 s after it was seen.
const (
	proofMaxAge = 2 * time.Second
	proofSWR    = 2 * time.Second
	proofSIE    = 14 * time.Second
)

func inSeconds() terms {
	return terms{proofMaxAge, proofSWR, proofSIE, 10 * time.Second, 600 * time.Millisecond, 5 * time.Second}
}

// gates returns how long the gates of a rotation stay closed at least.
func (r terms) gates() time.Duration { return 2*r.maxAge + r.swr + r.sie + r.lifetime }

const (
	atOnce     = 64                     // verifications of each kind; a machine that cannot keep up leaves some out instead of falling behind
	lastMoment = 700 * time.Millisecond // before its exp a token is verified for the last time
)

// TestRotationRefusesNoToken rotates the keys of three issuers side by side with the real keypost, while tokens are minted all the
// time and each is verified until it expires, by relying parties of three kinds, directly and through two real caches. One of the
// caches is primed just before the publication and then cut off from keypostd for as long as it may hand out its copy. Some rotations
// are driven by two operators at once, who are killed at random moments and begin again. A fourth is rolled back. make e2e-full rotates
// twelve; two of them have terms that kube-apiserver keeps copies by, and it verifies their tokens too.
//
// Not one token may be refused. That proves something only because the same relying parties do refuse tokens where a rotation is
// done wrong, in each of the ways that are tried beside it.
func TestRotationRefusesNoToken(t *testing.T) {
	var all []*rotating
	short := 3
	if full {
		short, all = 10, mistakes(withKubernetes(), true) // the longest first
		for i := range 2 {
			all = append(all, &rotating{name: "by the gates", how: (*rotating).byTheGates, operators: 1 + i, kill: i > 0, terms: withKubernetes(), kubernetes: true})
		}
	}
	for i := range short {
		all = append(all, &rotating{name: "by the gates", how: (*rotating).byTheGates, operators: 1 + i%2, kill: i%4 >= 2, terms: inSeconds()})
	}
	all = append(all, &rotating{name: "rolled back", how: (*rotating).rolledBack, operators: 1, terms: inSeconds()})
	all = append(all, mistakes(inSeconds(), false)...)
	p := newProof(t, len(all))
	for i, r := range all {
		p.publish(t, r, i)
		r.signers = []signer{newTestSigner(r.old), newTestSigner(r.old)}
	}
	if full {
		startEtcd(t)
		p.startKubernetes(t, all)
	}
	var done sync.WaitGroup
	for i, r := range all {
		done.Go(func() {
			time.Sleep(time.Duration(i) * 300 * time.Millisecond) // each in another phase of its copies
			if full && !r.kubernetes && i%2 > 0 {
				time.Sleep(withKubernetes().gates() / 2) // there is time, and less to do at once
			}
			r.run(t)
		})
	}
	done.Wait()
	report(t, all)
}

// mistakes returns the rotations that are done wrong. The three that need no other than a new key at the wrong time are those that
// kube-apiserver, too, is shown.
func mistakes(is terms, kubernetes bool) []*rotating {
	all := []*rotating{
		{name: "gate skipped", how: (*rotating).gateSkipped},
		{name: "signed first", how: (*rotating).signedFirst},
		{name: "swapped at once", how: (*rotating).swappedAtOnce},
	}
	if !kubernetes {
		all = append(all, &rotating{name: "removed at once", how: (*rotating).removedAtOnce})
		if full { // on a busy machine all of its steps take longer than a copy is kept
			all = append(all, &rotating{name: "stale-if-error forgotten", how: (*rotating).staleIfErrorForgotten})
		}
	}
	for _, r := range all {
		r.terms, r.kubernetes, r.wrong, r.operators = is, kubernetes, true, 1
	}
	return all
}

// report judges all rotations and prints their counts.
func report(t *testing.T, all []*rotating) {
	t.Helper()
	verified, refused := 0, 0
	for _, r := range all {
		r.judge(t)
		if !r.wrong {
			verified, refused = verified+r.sum("").verified, refused+r.sum("").refused
		}
	}
	showsMuch(t, all)
	t.Logf("%d verifications of rotations done right, %d refused\n%s", verified, refused, table(all))
}

// proof is a keypostd with development key sets, two caches before it, and those who rely on it.
type proof struct {
	env    []string // where key sets and observations are
	dir    string
	origin string // host:port of keypostd
	caches [2]string
	links  []*link // from the second cache to keypostd, one for each issuer
	client *http.Client
	node   *nodeJose

	goTurns, nodeTurns turns
	ca                 *authority
	caFiles            string // of keypostd and of the caches
}

// newProof starts what issuer-00 and so many others share.
func newProof(t *testing.T, issuers int) *proof {
	t.Helper()
	ca, dir := newAuthority(t), t.TempDir()
	address := programs.FreeAddress(t)
	p := &proof{dir: dir, ca: ca, origin: strings.Replace(address, "127.0.0.1", "localhost", 1), goTurns: make(turns, atOnce), nodeTurns: make(turns, atOnce)}
	p.env = []string{"KEYPOST_STORE=file://" + filepath.Join(dir, "keysets"), "KEYPOST_OBSERVATIONS=file://" + filepath.Join(dir, "observations"), "SSL_CERT_FILE=" + filepath.Join(dir, "ca.pem")}
	must(t, os.Mkdir(filepath.Join(dir, "observations"), 0o700))
	server := start(t, "keypostd", binary("keypostd"), "--dev", dir, "--address", address, "--admin-address", programs.FreeAddress(t))
	server.await(t, "making its certificate authority", func(context.Context) error {
		made, err := os.ReadFile(p.caFile())
		if err == nil && !x509.NewCertPool().AppendCertsFromPEM(made) {
			err = errors.New("no certificate yet")
		}
		return err
	})
	p.caFiles, p.client = trustAll(t, p.caFile(), ca.file)
	var locations [2][]string
	locations[0] = []string{fmt.Sprintf("location / { proxy_pass https://%s; }", address)}
	for i := range issuers {
		l := newLink(t, address)
		p.links = append(p.links, l)
		locations[1] = append(locations[1], fmt.Sprintf("location /issuer-%02d/ { proxy_pass https://%s; }", i, l.address))
		for c := range locations {
			locations[c] = append(locations[c], p.discovery(fmt.Sprintf("issuer-%02d", i)))
		}
	}
	for i := range p.caches {
		p.caches[i] = startCache(t, ca, p.origin, locations[i])
	}
	p.node = startNodeJose(t, p.caFiles)
	return p
}

// caFile is keypostd's.
func (p *proof) caFile() string { return filepath.Join(p.dir, "ca.pem") }

// keypost runs the command line, which is killed after a time that is not zero.
func (p *proof) keypost(killAfter time.Duration, args ...string) result {
	return keypost(p.env, killAfter, args...)
}

// rotating is one issuer whose key is replaced.
type rotating struct {
	*proof
	terms
	name       string // of the way in which it is rotated
	id, url    string
	link       *link
	parties    []party
	kubernetes bool     // kube-apiservers rely on it too
	signers    []signer // one cluster's
	asking     []string // flags with which a step asks the signers; nil: a person says that they sign with the new key
	old, next  signingKey
	how        func(*rotating, context.Context) error
	wrong      bool
	operators  int
	kill       bool

	handOver sync.Once
	killed   atomic.Int64
	cutUntil time.Time
	hidden   time.Duration // how long the cache that was cut off handed out the JWKS from before the publication
	err      error

	checks sync.WaitGroup
	mu     sync.Mutex
	counts map[string]count // by relying party and path
	minted map[string]int   // by kid
	why    []string         // the first errors
}

// count counts the verifications with an answer, and how many of the answers were a refusal. Others had none: no JWKS could be
// fetched, or the token had expired before its turn came or it had no turn.
type count struct{ verified, refused, unanswered, late int }

// fewest is how often each relying party has to verify by each path, of an issuer, for rotations to show something.
const fewest = 100

// publish publishes the key of a cluster; every second one is an RSA key.
func (p *proof) publish(t *testing.T, r *rotating, i int) {
	t.Helper()
	kind, id := []string{"p256", "rsa2048"}[i%2], fmt.Sprintf("issuer-%02d", i)
	r.proof, r.id, r.url, r.link = p, id, "https://"+p.origin+"/"+id, p.links[i]
	r.old, r.next, r.counts, r.minted = generateSigningKey(t, kind), generateSigningKey(t, kind), map[string]count{}, map[string]int{}
	must(t, p.keypost(0, "issuer", "add", id, "--dev", "--url", r.url, "--public-key-file", r.old.public, "--max-age", r.maxAge.String(),
		"--stale-while-revalidate", r.swr.String(), "--stale-if-error", r.sie.String(), "--token-lifetime", r.lifetime.String(),
		"--relying-party", "vault", "--relying-party", "kube-apiserver").err())
	await(t, r.url+" is served", func(ctx context.Context) error { return expect(ctx, p.client, r.url+"/keys.json", "") })
	for path, host := range p.paths() {
		url := "https://" + host + "/" + id + "/keys.json"
		r.parties = append(r.parties, party{"go-oidc", path, p.goTurns.take(goOIDC(p.client, r.url, url))},
			party{"jose", path, p.nodeTurns.take(p.node.at(r.url, url, r.maxAge))},
			party{"strict", path, p.goTurns.take((&strict{client: p.client, issuer: r.url, url: url}).verify)})
	}
}

// paths returns the hosts at which relying parties read.
func (p *proof) paths() map[string]string {
	return map[string]string{"direct": p.origin, "cache 1": p.caches[0], "cache 2": p.caches[1]}
}

// run mints and verifies from before the rotation until every token has expired.
func (r *rotating) run(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var minting sync.WaitGroup
	for i := range r.signers {
		minting.Go(func() { r.mint(ctx, r.signers[i]) })
	}
	time.Sleep(max(2*r.every+time.Second, 3*time.Second)) // some tokens of the old key first
	r.err = r.how(r, ctx)
	time.Sleep(max(time.Until(r.cutUntil), 3*time.Second))
	stop()
	minting.Wait()
	r.checks.Wait()
}

// mint has a server make tokens, each of which everybody verifies at once, again and again, and just before its end.
func (r *rotating) mint(ctx context.Context, server signer) {
	for every := time.NewTicker(r.every); ; {
		select {
		case <-ctx.Done():
			every.Stop()
			return
		case <-every.C:
		}
		token, err := server.mint(r.url, r.lifetime)
		if err != nil { // the server restarts
			continue
		}
		r.mu.Lock()
		r.minted[token.kid]++
		r.mu.Unlock()
		left := time.Until(token.exp) - lastMoment
		moments := []time.Duration{left}
		for in := time.Duration(0); in < left; in += r.again {
			moments = append(moments, in)
		}
		for _, in := range moments {
			r.checks.Add(1)
			time.AfterFunc(in, func() {
				defer r.checks.Done()
				for _, by := range r.parties {
					r.checks.Go(func() { r.count(by.name+" "+by.path, by.verify(context.Background(), token.text), token) })
				}
			})
		}
	}
}

func (r *rotating) count(by string, err error, token proofToken) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts[by]
	switch {
	case errors.Is(err, errBusy), err != nil && !time.Now().Before(token.exp):
		c.late++
	case errors.Is(err, errNoJWKS):
		c.unanswered++
		r.note(by, err, token)
	case err != nil:
		c.verified++
		c.refused++
		r.note(by, err, token)
	default:
		c.verified++
	}
	r.counts[by] = c
}

// note keeps the first few errors.
func (r *rotating) note(by string, err error, token proofToken) {
	key := "old"
	if token.kid == r.next.kid {
		key = "new"
	}
	if len(r.why) < 5 {
		r.why = append(r.why, fmt.Sprintf("%s: a token of the %s key, %v before its end: %v", by, key, time.Until(token.exp).Round(100*time.Millisecond), err))
	}
}

func (r *rotating) sum(match string) (s count) {
	for by, c := range r.counts {
		if strings.Contains(by, match) {
			s.verified, s.refused, s.unanswered, s.late = s.verified+c.verified, s.refused+c.refused, s.unanswered+c.unanswered, s.late+c.late
		}
	}
	return s
}

// judge says what the counts show.
func (r *rotating) judge(t *testing.T) {
	t.Helper()
	all := r.sum("")
	switch {
	case r.err != nil:
		t.Errorf("%s: %v", r.name, r.err)
	case r.minted[r.old.kid] == 0 || r.minted[r.next.kid] == 0:
		t.Errorf("%s: tokens of each key: %v", r.name, r.minted)
	case r.wrong && all.refused == 0:
		t.Errorf("%s: no token was refused, so the others show nothing", r.name)
	case !r.wrong && all.refused > 0:
		t.Errorf("%s: %d of %d verifications were refused:\n%s", r.name, all.refused, all.verified, strings.Join(r.why, "\n"))
	}
}

// showsMuch fails the test if rotations done right were hardly looked at, as on a busy machine: half of them need a cache that handed out
// its old copy for as long as it may, and each relying party verifies by each path, on average, fewest tokens of an issuer.
func showsMuch(t *testing.T, all []*rotating) {
	t.Helper()
	right, hid, counts := map[bool]int{}, 0, map[bool]map[string]count{true: {}, false: {}} // by kubernetes
	for _, r := range all {
		if r.wrong {
			continue
		}
		right[r.kubernetes]++
		if r.hidden >= r.maxAge+r.sie-4*time.Second {
			hid++
		}
		for by, c := range r.counts {
			sum := counts[r.kubernetes][by]
			counts[r.kubernetes][by] = count{sum.verified + c.verified, 0, sum.unanswered + c.unanswered, sum.late + c.late}
		}
	}
	if rotations := right[true] + right[false]; 2*hid < rotations {
		t.Errorf("in %d of %d rotations, the cache that was cut off handed out its copy until its end, so this shows little", hid, rotations)
	}
	for kubernetes, by := range counts {
		for _, name := range slices.Sorted(maps.Keys(by)) {
			if c := by[name]; c.verified < fewest*right[kubernetes] || c.verified < 50*c.unanswered {
				t.Errorf("%s has verified %d times, got no JWKS %d times and came too late %d times in %d rotations, so this shows little: is the machine too busy?",
					name, c.verified, c.unanswered, c.late, right[kubernetes])
			}
		}
	}
}

// table has a line for each rotation: verifications, and how many of them were refusals, by relying party and by path.
func table(all []*rotating) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	columns := []string{"go-oidc", "jose", "strict", "kube-apiserver", "direct", "cache 1", "cache 2"}
	fmt.Fprintf(w, "rotation\tmax-age\toperators\tkilled\ttokens old+new\thidden\tverified\trefused\t%s\tno JWKS\ttoo late\n", strings.Join(columns, "\t"))
	for _, r := range all {
		s := r.sum("")
		fmt.Fprintf(w, "%s\t%v\t%d\t%d\t%d+%d\t%v\t%d\t%d", r.name, r.maxAge, r.operators, r.killed.Load(), r.minted[r.old.kid], r.minted[r.next.kid], r.hidden.Round(100*time.Millisecond), s.verified, s.refused)
		for _, c := range columns {
			fmt.Fprintf(w, "\t%d", r.sum(c).refused)
		}
		fmt.Fprintf(w, "\t%d\t%d\n", s.unanswered, s.late)
	}
	_ = w.Flush() // to a strings.Builder
	return out.String()
}
