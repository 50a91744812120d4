package renewal

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/crypto/acme/autocert"
)

func TestCache(t *testing.T) {
	ctx := context.Background()
	dir := autocert.DirCache(t.TempDir())
	if err := errors.Join(dir.Put(ctx, "host", []byte("old")), dir.Put(ctx, "acme_account+key", []byte("account"))); err != nil {
		t.Fatal(err)
	}
	c := &Cache{Cache: dir, Host: "host"}
	if _, err := c.Get(ctx, "host"); !errors.Is(err, autocert.ErrCacheMiss) {
		t.Errorf("the certificate to renew is given back: %v", err)
	}
	if account, err := c.Get(ctx, "acme_account+key"); err != nil || string(account) != "account" {
		t.Errorf("the account: %q, %v", account, err)
	}
	if err := errors.Join(c.Put(ctx, "host", []byte("new")), c.Put(ctx, "token", []byte("answer"))); err != nil {
		t.Fatal(err)
	}
	if kept, err := dir.Get(ctx, "host"); err != nil || string(kept) != "old" || string(c.Ordered()) != "new" {
		t.Errorf("the cache has %q, %v, and what was ordered is %q; it is judged first", kept, err, c.Ordered())
	}
	if shared, err := dir.Get(ctx, "token"); err != nil || string(shared) != "answer" {
		t.Errorf("an answer to a challenge: %q, %v", shared, err)
	}
	if err := dir.Put(ctx, "host", []byte("newer")); err != nil {
		t.Fatal(err)
	}
	if later, err := c.Get(ctx, "host"); err != nil || string(later) != "newer" {
		t.Errorf("once it was ordered: %q, %v; the Manager's timer would order again", later, err)
	}
}
