// Bare is the least that net/http can do: it answers every request with the same headers and bytes, over TLS,
// without a limit, a lookup or a counter. What keypostd costs is measured against it.
package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: bare ADDRESS CERT KEY RESPONSE")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

func serve(address, cert, key, response string) error {
	h, err := readAnswer(response)
	if err != nil {
		return err
	}
	srv := &http.Server{ //nolint:gosec // without a timeout: their price is part of what is measured
		Addr: address, Handler: h, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	return srv.ListenAndServeTLS(cert, key)
}

// answer is an http.Handler. It keeps header values in the form in which net/http keeps them, so that it allocates
// nothing: any other way of setting them would flatter what is compared with it.
type answer struct {
	fields []field
	body   []byte
}

type field struct {
	name   string
	values []string
}

// readAnswer reads a recorded response, head and body. Date is left to net/http.
func readAnswer(file string) (*answer, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	r, err := http.ReadResponse(bufio.NewReader(f), nil)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(r.Body)
	a := &answer{body: body}
	for name, values := range r.Header {
		if name != "Date" {
			a.fields = append(a.fields, field{name, values})
		}
	}
	return a, err
}

// ServeHTTP implements http.Handler.
func (a *answer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	for i := range a.fields {
		h[a.fields[i].name] = a.fields[i].values
	}
	w.Write(a.body) //nolint:errcheck // the client went away: nobody is left to tell
}
