package arm

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// The error that ends a group of calls is what net/http returns to those that it cuts short: they take it as it is, side by side.
func TestWhatAnotherCallCameToIsNotReadAgain(t *testing.T) {
	body := `{"error":{"code":"ResourceNotFound","message":"It is not there."}}`
	first := explain("a", runtime.NewResponseError(&http.Response{StatusCode: http.StatusNotFound, Status: "404 Not Found",
		Request: &http.Request{Method: http.MethodGet, URL: &url.URL{}}, Body: io.NopCloser(strings.NewReader(body))}))
	const says = "a: It is not there (ResourceNotFound)"
	if first.Error() != says || !IsMissing(first) {
		t.Errorf("%v, missing: %v", first, IsMissing(first))
	}
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if err := explain("b", fmt.Errorf("Get: %w", first)); err.Error() != "Get: "+says || !IsMissing(err) {
				t.Errorf("%v, missing: %v", err, IsMissing(err))
			}
		})
	}
	calls.Wait()
}
