package cloudfront

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakecloudfront"
)

func open(t *testing.T, s *fakecloudfront.Server) *Client {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	c, err := Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.pause = time.Millisecond
	return c
}

func TestInvalidate(t *testing.T) {
	done := 0
	s := &fakecloudfront.Server{Distribution: "E1", Looks: 2, Done: func([]string) { done++ }}
	c := open(t, s)
	paths := []string{"/prod-a/keys.json*", "/prod-a/openid/v1/jwks*"}
	for range 2 { // the second time it is the same invalidation
		if err := c.Invalidate(t.Context(), "E1", "revoke-1", paths); err != nil || done != 1 {
			t.Fatalf("Invalidate = %v, completed %d times", err, done)
		}
	}
	if made := s.Made(); len(made) != 1 || !slices.Equal(made[0], paths) {
		t.Errorf("invalidations %q", made)
	}
}

func TestInvalidateRefused(t *testing.T) {
	for want, s := range map[string]*fakecloudfront.Server{
		"this account has no such distribution":                                             {Distribution: "E2"},
		"the credentials need cloudfront:CreateInvalidation and cloudfront:GetInvalidation": {Distribution: "E1", Denied: true},
	} {
		err := open(t, s).Invalidate(t.Context(), "E1", "r", []string{"/keys.json*"})
		if err == nil || !strings.HasPrefix(err.Error(), "cloudfront:CreateInvalidation: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("Invalidate = %v, want %q", err, want)
		}
	}
}

func TestInvalidateWaits(t *testing.T) {
	c := open(t, &fakecloudfront.Server{Distribution: "E1", Looks: 1 << 30})
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(stop) })
	if err := c.Invalidate(ctx, "E1", "r", []string{"/keys.json*"}); err == nil {
		t.Error("an invalidation that is under way passes for a completed one")
	}
}
