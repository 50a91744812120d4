// Bare serves over TLS what keypostd answers for a directory of key sets, with as little work as net/http allows (see floor).
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/test/bench/floor"
)

func main() {
	h, err := recorded(os.Args[4])
	if err == nil {
		debug.FreeOSMemory() // of what was needed to learn the answers
		err = floor.NewServer(os.Args[1], h).ListenAndServeTLS(os.Args[2], os.Args[3])
	}
	fmt.Fprintln(os.Stderr, "bare:", err)
	os.Exit(1)
}

func recorded(dir string) (http.Handler, error) {
	p, err := floor.Publish(context.Background(), dir)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".yaml"))
	}
	return floor.NewHandler(issuer.NewHandler(p, nil), names), err
}
