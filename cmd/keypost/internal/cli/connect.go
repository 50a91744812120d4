package cli

import (
	"errors"
	"net"
	"strings"
)

var errHostPort = errors.New("it is not HOST:PORT")

// CheckConnect returns an error of usage unless the value of --connect is HOST:PORT or empty.
func CheckConnect(connect string) error {
	if connect == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(connect); err != nil || strings.HasPrefix(connect, ":") {
		return Usagef("--connect %q: %w", connect, errHostPort)
	}
	return nil
}
