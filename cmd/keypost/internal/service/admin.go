package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/open"
)

// Bounds on the admin listener's answer; 10,000 issuers take about 3 MB.
const (
	maxReport    = 64 << 20
	adminTimeout = 10 * time.Second
)

// documents and documentSuffix are around the name of a key set in the path of its document, at the admin listeners of keypostd and
// keypost mirror.
const (
	documents      = "/keysets/"
	documentSuffix = ".yaml"
)

// AskAdmin returns what a running keypostd serves.
func AskAdmin(ctx context.Context, admin string) (issuer.Report, error) {
	var report issuer.Report
	err := ask(ctx, adminPage{"--admin", admin, "/issuers"}, func(body io.Reader) error {
		return json.NewDecoder(io.LimitReader(body, maxReport)).Decode(&report)
	})
	return report, err
}

// AskDocument returns the document of the last good version of a key set that a running keypostd or mirror has.
func AskDocument(ctx context.Context, admin string, n keystore.Name) (doc []byte, err error) {
	err = ask(ctx, adminPage{"--from", admin, documents + string(n) + documentSuffix}, func(body io.Reader) (err error) {
		doc, err = io.ReadAll(io.LimitReader(body, keystore.MaxDocument))
		return err
	})
	return doc, err
}

// adminPage is a page of the admin listener that the value of a flag names.
type adminPage struct{ flag, listener, path string }

// ask asks an admin listener for a page that read reads.
func ask(ctx context.Context, p adminPage, read func(io.Reader) error) error {
	if !strings.HasPrefix(p.listener, "http://") && !strings.HasPrefix(p.listener, "https://") {
		return cli.WithHint(cli.Usagef("%s %q is not a URL", p.flag, open.Redacted(p.listener)), "use %s http://127.0.0.1:9090", p.flag)
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.listener, "/")+p.path, http.NoBody)
	if err != nil {
		return cli.Usagef("%s %q is not a URL", p.flag, open.Redacted(p.listener))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return cli.WithHint(fmt.Errorf("ask keypostd at %s: %w", req.URL.Host, unanswered(err)), "is its admin listener reachable from here? See admin.address in its configuration")
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusForbidden:
		return cli.WithHint(fmt.Errorf("ask keypostd: %s refuses: it answers clients on its own machine only", req.URL.Host),
			"ask it by 127.0.0.1, in a pod through kubectl port-forward; or set admin.page: true in its configuration")
	case resp.StatusCode == http.StatusNotFound && p.path != "/issuers":
		return cli.WithHint(fmt.Errorf("ask keypostd: %s has no document of a good version of this key set", req.URL.Host), "ask the mirror or another replica, or give --from FILE from a backup or from Git")
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("ask keypostd: %s answers %d; is it keypostd's admin listener?", req.URL.Host, resp.StatusCode)
	}
	if err := read(resp.Body); errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("ask keypostd at %s: %w", req.URL.Host, unanswered(err))
	} else if err != nil {
		return fmt.Errorf("ask keypostd: %s does not answer with what was asked for", req.URL.Host)
	}
	return nil
}

// unanswered returns why an HTTP request has no answer, without its method and URL.
func unanswered(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", adminTimeout)
	}
	if e, is := errors.AsType[*url.Error](err); is {
		return e.Err
	}
	return err
}
