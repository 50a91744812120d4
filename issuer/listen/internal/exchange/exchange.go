// Package exchange is what passes between one order and its ACME CA: over TLS, without redirects, of bounded length, and with at most
// one validation by the CA that can fail. It keeps why the CA could not validate a host.
package exchange

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keypost/keypost/internal/text"
)

// Transport is the way of one order to the CA. It notes why the CA could not validate a host: autocert tries the next challenge then, and
// in the end says only that there is no other one. It may be used concurrently.
type Transport struct {
	Next  http.RoundTripper
	Until time.Time // afterwards no CA is reached
	// Challenge is the type of challenge that the order answers, where the CA offers it: autocert sees no other one then. It would
	// answer one of each type, and a CA counts each that fails. Empty: all.
	Challenge string

	mu     sync.Mutex
	found  []string
	unread error // why there is no directory to order by
}

// maxAnswer bounds what is read of an answer of the CA, in bytes.
const maxAnswer = 1 << 20

// MaxReason bounds what is shown of an answer of the CA, in characters.
const MaxReason = 500

// bounded is a body of which no more is read than its reader lets through.
type bounded struct {
	io.Reader
	io.Closer
}

// RoundTrip is part of http.RoundTripper.
func (r *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if time.Now().After(r.Until) {
		return nil, errors.New("this order is over")
	}
	if req.URL.Scheme != "https" { // the directory's URL is; what it names has to be as well
		return nil, fmt.Errorf("the CA names %s, without TLS, which is not followed (RFC 8555, section 6.1); ask whoever runs it for https", text.OneLine(req.URL.Redacted(), MaxReason))
	}
	resp, err := r.Next.RoundTrip(req)
	if req.Method == http.MethodGet { // package acme gets the directory, and nothing else
		err = r.readable(req, resp, err)
	}
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		_ = resp.Body.Close() // nothing of it is read
		return nil, redirected(resp)
	}
	// Package acme reads errors of whatever type and length: one of 400 MB took 1.6 GB, and with it a server whose certificate is sound.
	resp.Body = bounded{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return resp, nil
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read
	if err != nil {
		return nil, err
	}
	r.note(body)
	resp.Body = io.NopCloser(bytes.NewReader(r.choose(body)))
	return resp, nil
}

// readable returns why the CA's directory cannot be read, and keeps it where that stays so until somebody changes a setting.
func (r *Transport) readable(req *http.Request, resp *http.Response, err error) error {
	where := text.OneLine(req.URL.Redacted(), MaxReason)
	switch bad, untrusted := errors.AsType[*tls.CertificateVerificationError](err); {
	case untrusted:
		err = fmt.Errorf("the certificate of the CA's own server, which has the ACME directory %s, is not trusted: %w; set listen.tls.acme.caFile to the root that signed it, or leave it out for the system's", where, bad.Err)
	case err != nil:
		return err
	case resp.StatusCode >= 400 && resp.StatusCode <= 499 && resp.StatusCode != http.StatusTooManyRequests:
		_ = resp.Body.Close() // nothing of it is read
		err = fmt.Errorf("the ACME directory %s answers %d; set listen.tls.acme.directory to the URL that the CA documents", where, resp.StatusCode)
	default:
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unread = err
	return err
}

// redirected says where an answer would have led. No redirect is followed: RFC 8555 has none, and one leads wherever the CA likes, to
// what listens inside the network that this server is in, with a request that the account's key has signed for another URL.
func redirected(resp *http.Response) error {
	to, err := resp.Location()
	if err != nil {
		return fmt.Errorf("the CA answers %d, which means nothing in ACME; ask whoever runs it", resp.StatusCode)
	}
	return fmt.Errorf("the CA redirects to %s (%d), which is not followed; if that is where its ACME directory is now, set listen.tls.acme.directory to it",
		text.OneLine(to.Redacted(), MaxReason), resp.StatusCode)
}

// note keeps the error of each challenge of an authorization (RFC 8555, sections 7.1.4 and 8).
func (r *Transport) note(body []byte) {
	var authorization struct {
		Challenges []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
			Error  *struct {
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
		why := "failed, and the CA gives no reason"
		switch {
		case c.Error != nil:
			why = c.Error.Detail
		case c.Status != "invalid":
			continue
		}
		reason := fmt.Sprintf("%s: %s", text.OneLine(c.Type, 50), text.OneLine(why, MaxReason))
		if !slices.Contains(r.found, reason) {
			r.found = append(r.found, reason)
		}
	}
}

// choose leaves the challenges of the chosen type in an authorization, if there are any. All else stays as it is.
func (r *Transport) choose(body []byte) []byte {
	var authorization map[string]json.RawMessage
	var challenges []json.RawMessage
	if r.Challenge == "" || json.Unmarshal(body, &authorization) != nil || json.Unmarshal(authorization["challenges"], &challenges) != nil {
		return body
	}
	chosen := slices.DeleteFunc(challenges, func(c json.RawMessage) bool {
		var one struct {
			Type string `json:"type"`
		}
		return json.Unmarshal(c, &one) != nil || one.Type != r.Challenge
	})
	if len(chosen) == 0 {
		return body
	}
	var err error
	if authorization["challenges"], err = json.Marshal(chosen); err != nil {
		return body
	}
	less, err := json.Marshal(authorization)
	if err != nil {
		return body
	}
	return less
}

// ErrNotValidated is in an error of Explain when the CA has tried to validate a host and could not.
var ErrNotValidated = errors.New("the CA says")

// ErrNoDirectory is in an error of Explain when the CA's directory could not be read, for a reason that no wait takes away.
var ErrNoDirectory = errors.New("nothing was ordered")

// Explain adds what the CA found to an error, and makes one line of it.
func (r *Transport) Explain(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unread != nil {
		return fmt.Errorf("%w: %s", ErrNoDirectory, text.OneLine(r.unread.Error(), 2*MaxReason))
	}
	if len(r.found) == 0 {
		return errors.New(text.OneLine(err.Error(), 2*MaxReason)) // much of it is the CA's own text
	}
	return fmt.Errorf("%s; %w: %s", text.OneLine(err.Error(), 2*MaxReason), ErrNotValidated, strings.Join(r.found, "; "))
}
