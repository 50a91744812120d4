// Package servername speaks TLS with a server that may have a certificate for one of several names alone, and keeps what it answered
// to each of them.
package servername

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Dial returns a connection of TLS under the first of the names that the server has a certificate for, and that name, each over
// a connection of its own. The error has what was answered to each name.
func Dial(ctx context.Context, conf *tls.Config, names []string, dial func() (net.Conn, error)) (*tls.Conn, string, error) {
	var failed refusals
	for _, name := range names {
		raw, err := dial()
		if err != nil {
			return nil, "", cmp.Or(failed.err(), err)
		}
		conf = conf.Clone()
		conf.ServerName = name
		conn := tls.Client(raw, conf)
		if err = conn.HandshakeContext(ctx); err == nil {
			return conn, name, nil
		}
		_ = raw.Close()
		if failed = append(failed, refusal{name, OnlyGiven(err, conf.RootCAs)}); isTimeout(err) {
			break
		}
	}
	return nil, "", failed.err()
}

// refusal is why there is no connection under a name.
type refusal struct {
	name string
	err  error
}

// refusals are those of one server, in the order in which the names were asked for: the issuer's host first.
type refusals []refusal

// err returns the error of the only refusal, or one of all.
func (all refusals) err() error {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0].err
	}
	return &all
}

func (all *refusals) Error() string {
	var each []string
	for _, r := range *all {
		each = append(each, fmt.Sprintf("asked as %s: %v", r.name, r.err))
	}
	return strings.Join(each, "; ")
}

func (all *refusals) Unwrap() (each []error) {
	for _, r := range *all {
		each = append(each, r.err)
	}
	return each
}

// Timeout reports whether one of them is a wait in vain, which ends the attempts.
func (all *refusals) Timeout() bool { return slices.ContainsFunc(all.Unwrap(), isTimeout) }

// ByName returns the errors of the names that were asked for.
func ByName(err error) []error {
	if all, several := errors.AsType[*refusals](err); several {
		return all.Unwrap()
	}
	return []error{err}
}

// givenError is a certificate that the CAs which were given do not vouch for. Those of the system may.
type givenError struct{ err error }

func (e *givenError) Error() string {
	return e.err.Error() + " (of the CAs in --ca-file alone, which take the place of the system's)"
}
func (e *givenError) Unwrap() error { return e.err }

// OnlyGiven returns err, and says with it what stands in the place of the system's CAs if that may be the reason.
func OnlyGiven(err error, roots *x509.CertPool) error {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	if _, said := errors.AsType[*givenError](err); !unknown || said || roots == nil {
		return err
	}
	return &givenError{err}
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && e.Timeout()
}
