package arm

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	answerLimit = 32 << 20 // bytes; a page of full roles has some megabytes

	// Of one list. A subscription has at most 4,000 assignments, a tenant 5,000 roles of its own, of some KiB each
	// (https://learn.microsoft.com/azure/role-based-access-control/troubleshoot-limits): tens of pages, which take seconds.
	pageLimit = 2000
	listLimit = 64 << 20     // bytes
	listTime  = 3 * callTime // three of its pages may be as slow as a call may be
)

// errTooLong is what reading an answer ends with that has more than answerLimit.
var errTooLong = errors.New("the answer has more than 32 MiB, so it is not Azure's: see what is between here and Azure")

// errListTooLong is what reading a list ends with that has more than listLimit on its pages.
var errListTooLong = errors.New("the list has more than 64 MiB, so it is not Azure's: see what is between here and Azure")

// listBytes is how many bytes more the pages of a list may have. It is a value of the context of its calls: an answer's bytes are
// known to the transport alone, which the SDK hands nothing else.
type listBytes struct{ left int64 }

type listKey struct{}

// bounded is a transport whose answers end: the SDK reads each into memory, however long it is.
type bounded struct{ to Transport }

func (b bounded) Do(req *http.Request) (*http.Response, error) {
	resp, err := b.to.Do(req)
	if resp != nil && resp.Body != nil {
		list, _ := req.Context().Value(listKey{}).(*listBytes)
		resp.Body = &limited{resp.Body, answerLimit, list}
	}
	return resp, err
}

// errElsewhere is what a call ends with that would take the caller's token to somebody else.
var errElsewhere = errors.New("it does not get the caller's token: see what is between here and Azure")

// guarded is a transport that takes the caller's token to Azure alone. The SDK sends it wherever an answer leads: to the next page of
// a list, and to where a deletion is looked at. Whoever can write one answer would have the token otherwise.
type guarded struct {
	to   Transport
	host string // of Azure Resource Manager
}

func (g guarded) Do(req *http.Request) (*http.Response, error) {
	u := req.URL
	usual := u.Port() == "" || u.Port() == "443"
	if req.Header.Get("Authorization") != "" && (u.Scheme != "https" || !usual || !strings.EqualFold(u.Hostname(), g.host)) {
		return nil, fmt.Errorf("an answer leads to %q, which is not https://%s, and %w", u.Scheme+"://"+u.Host, g.host, errElsewhere)
	}
	return g.to.Do(req)
}

// limited is a body that fails where it goes on for too long, so that nobody takes its beginning for the whole.
type limited struct {
	io.ReadCloser
	left int64
	list *listBytes // nil for what is no page of a list
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p[:min(int64(len(p)), l.left+1)])
	if l.left -= int64(n); l.left < 0 {
		return 0, errTooLong
	}
	if l.list != nil {
		if l.list.left -= int64(n); l.list.left < 0 {
			return 0, errListTooLong
		}
	}
	return n, err
}

// usualTransport is as the SDK's own: it notices within seconds that a connection is dead, and lets Azure's older servers negotiate
// TLS 1.2 anew. It follows no redirect, which Azure does not answer with: net/http would take the token along, also without TLS.
func usualTransport() Transport {
	t, is := http.DefaultTransport.(*http.Transport)
	if !is {
		return http.DefaultClient
	}
	t = t.Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, Renegotiation: tls.RenegotiateFreelyAsClient}
	t.MaxIdleConnsPerHost = Parallel
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
