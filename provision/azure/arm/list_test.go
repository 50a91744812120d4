package arm

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/keypost/keypost/provision/cloud"
)

// A list whose pages always lead to another one ends: by its bytes, its time or its number of pages, whichever is used up first.
func TestListsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		page int           // bytes
		each time.Duration // of one page
		last int           // page that leads to no other; 0 for none
		want string        // empty for no error
	}{
		{"short", 1 << 10, time.Second, 45, ""},
		{"as long as it may be", 16 << 20, time.Second, 4, ""},
		{"large", 16 << 20, time.Second, 0, "things/read: the list has more than 64 MiB, so it is not Azure's"},
		{"slow", 10, 21 * time.Second, 0, "things/read: the list has not ended after 15m0s, on page 43: see what is between here and Azure"},
		{"many pages", 10, time.Millisecond, 0, "things/read: the list has more than 2000 pages, so it does not end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := bounded{transportFunc(func(r *http.Request) (*http.Response, error) {
					select {
					case <-time.After(tt.each):
						return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(strings.Repeat(" ", tt.page)))}, nil
					case <-r.Context().Done():
						return nil, r.Context().Err()
					}
				})}
				asked := 0
				pager := runtime.NewPager(runtime.PagingHandler[[]*int]{
					More: func([]*int) bool { return asked != tt.last },
					Fetcher: func(ctx context.Context, _ *[]*int) ([]*int, error) {
						asked++
						req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://management.azure.com/things", nil)
						if err != nil {
							return nil, err
						}
						resp, err := to.Do(req)
						if err != nil {
							return nil, err
						}
						defer func() { _ = resp.Body.Close() }()
						_, err = io.Copy(io.Discard, resp.Body)
						return []*int{&asked}, err
					},
				})
				c := &Client{slots: make(chan struct{}, 1), API: cloud.API{Name: "Azure", CallTime: callTime, OnWait: func(cloud.Wait) {}}}
				list, err := All(t.Context(), PagesOf(c, "things/read", pager), func(p []*int) []*int { return p }, func(n int) int { return n })
				if tt.want == "" && (err != nil || len(list) != tt.last) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("%d items, %v; want %q", len(list), err, tt.want)
				}
			})
		})
	}
}
