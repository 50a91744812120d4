package open

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keypost/keypost/test/silent"
)

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: c}}],
users: [{name: c, user: {token: t}}], clusters: [{name: c, cluster: {server: "%s", insecure-skip-tls-verify: %t}}]}`

// A store whose server says nothing, from whatever stage on, costs a mirror no connection and no goroutine for long.
func TestSilentStores(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	for stage, says := range map[string][2]string{
		"handshake": {"https://"}, "header": {"http://"}, "body": {"http://", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"},
	} {
		t.Run(stage, func(t *testing.T) {
			s := silent.Listen(t, says[1])
			endpoint, file := says[0]+s.Address, filepath.Join(t.TempDir(), "kubeconfig")
			if err := os.WriteFile(file, fmt.Appendf(nil, kubeconfig, endpoint, stage == "handshake"), 0o600); err != nil {
				t.Fatal(err)
			}
			var lists []func(time.Duration) error
			for _, url := range []string{"s3://bucket?region=r&endpoint=" + endpoint, "kubernetes://n?kubeconfig=" + file} {
				u, err := Parse(url)
				if err != nil {
					t.Fatal(err)
				}
				b, err := u.Source(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				lists = append(lists, func(patience time.Duration) error {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					_, err := b.List(ctx)
					return err
				})
			}
			s.LeavesNothing(t, lists...)
		})
	}
}
