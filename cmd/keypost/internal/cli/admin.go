package cli

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

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore/open"
)

// Bounds on the admin listener's answer; 10,000 issuers take about 3 MB.
const (
	maxReport    = 64 << 20
	adminTimeout = 10 * time.Second
)

// AskAdmin returns what a running keypostd serves.
func AskAdmin(ctx context.Context, admin string) (issuer.Report, error) {
	if !strings.HasPrefix(admin, "http://") && !strings.HasPrefix(admin, "https://") {
		return issuer.Report{}, WithHint(Usagef("--admin %q is no URL", open.Redacted(admin)), "use --admin http://127.0.0.1:9090")
	}
	var report issuer.Report
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(admin, "/")+"/issuers", http.NoBody)
	if err != nil {
		return report, Usagef("--admin %q is no URL", open.Redacted(admin))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return report, WithHint(fmt.Errorf("ask keypostd at %s: %w", req.URL.Host, unanswered(err)), "is its admin listener reachable from here? See admin.address in its configuration")
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusForbidden {
		return report, WithHint(fmt.Errorf("ask keypostd: %s refuses: it answers clients on its own machine only", req.URL.Host),
			"ask it by 127.0.0.1, in a pod through kubectl port-forward; or set admin.page: true in its configuration")
	}
	if resp.StatusCode != http.StatusOK {
		return report, fmt.Errorf("ask keypostd: %s answers %d; is it keypostd's admin listener?", req.URL.Host, resp.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReport)).Decode(&report); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return report, fmt.Errorf("ask keypostd at %s: %w", req.URL.Host, unanswered(err))
		}
		return report, fmt.Errorf("ask keypostd: %s does not answer with its issuers", req.URL.Host)
	}
	return report, nil
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
