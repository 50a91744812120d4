package fakeazure

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Ask makes a call of Resource Manager as the caller, with another program than the one that is tested: to change behind its back
// what the tenant holds. The version is the API's; a call that is refused is an error.
func (s *Server) Ask(method, path, version, body string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "https://management.azure.com"+path+"?api-version="+version, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+AccessToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.Client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s %s", method, path, resp.Status, text)
	}
	return err
}
