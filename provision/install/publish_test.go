package install

import (
	"errors"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

// A name that is offered instead of one that is taken fits the URL where it can, is one, and is nobody's.
func TestFreeName(t *testing.T) {
	taken := catalog.Contents{Unread: map[keystore.Name]error{}}
	for _, n := range []keystore.Name{"a", "b", "oidc", "c", "c-2"} {
		taken.Unread[n] = errors.New("x")
	}
	long := strings.Repeat("a", 60) + "-bc"
	for _, tt := range []struct{ name, url, want string }{
		{"a", "https://oidc.example.com/a2", "a2"},
		{"a", "https://a2.example.com", "a2"},
		{"a", "https://a2.example.com/B", "a2"},
		{"a", "https://oidc.example.com/b", "a-2"},
		{"c", "https://oidc.example.com", "c-3"},
		{long, "https://oidc.example.com/b", strings.Repeat("a", 60) + "-2"},
		{strings.Repeat("d", 63), "https://oidc.example.com/b", strings.Repeat("d", 61) + "-2"},
	} {
		free := freeName(taken, keystore.Name(tt.name), tt.url)
		if err := free.Check(); err != nil || string(free) != tt.want {
			t.Errorf("%s, %s: %s, want %s (%v)", tt.name, tt.url, free, tt.want, err)
		}
	}
}
