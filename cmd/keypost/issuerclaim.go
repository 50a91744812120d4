package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/keypost/keypost/keystore"
)

// checkUnread refuses URLs that a key set may have which cannot be read. Once that one is mended, a keypostd that
// starts would serve neither of the two. broken is what all returned. Force lets unknown issuers pass, but not issuers
// that are known to be the same.
func checkUnread(broken map[keystore.Name]error, urls []string, force bool) error {
	for _, n := range slices.Sorted(maps.Keys(broken)) {
		b, _ := errors.AsType[*keystore.BrokenError](broken[n])
		switch {
		case b == nil && !force:
			return withHint(fmt.Errorf("key set %q cannot be read, so that it is unknown whether it has that issuer URL: %w", n, broken[n]),
				"%s; if you know that it does not have it, add --force --why REASON", remedy(broken[n]))
		case b == nil || b.Issuers == nil && force:
		case b.Issuers == nil:
			return withHint(fmt.Errorf("key set %q is broken, so that it is unknown whether it has that issuer URL: %w", n, b.Err),
				"mend its document, or put the last good one back (from Git or a backup); if you know that it does not have it, add --force --why REASON")
		case overlaps(b.Issuers, urls):
			return withHint(fmt.Errorf("key set %q, which is broken, has that issuer URL already: %w", n, b.Err),
				"mend its document, or put the last good one back (from Git or a backup)")
		}
	}
	return nil
}

func remedy(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "run this as somebody who may read it"
	}
	return "try again"
}

// checkAlone looks at a store once more after s was created in it. Two people who add one URL under two names at one
// time both find it free, and no store can refuse the second: it writes one document and knows no other. before is what
// the store held at the first look; only what came in since is read.
func checkAlone(ctx context.Context, st keystore.Reader, before map[keystore.Name]keystore.Revision, s keystore.KeySet) error {
	now, err := readAll(ctx, st, before)
	if err != nil {
		return fmt.Errorf("key set %q is stored, but whether another one got its issuer URL at the same time is unknown: %w", s.Name(), err)
	}
	for _, o := range now.sets {
		if o.Name() == s.Name() || o.Withdrawn() || !overlaps(o.Issuers(), urls(s)) {
			continue
		}
		return withHint(fmt.Errorf("key set %q is stored, and so is %q, which got the same issuer URL at the same time (by %s): "+
			"keypostd goes on with the one that it serves already, and with neither after a restart", s.Name(), o.Name(), author(o)),
			"agree on one of them, and withdraw the other: %s",
			command{"issuer", "remove", string(s.Name()), "--confirm-url", urls(s)[0], "--why", "REASON", "--force"})
	}
	return nil
}

// author is who wrote a key set last, as far as it says.
func author(s keystore.KeySet) string {
	if h := s.History(); len(h) > 0 && h[len(h)-1].By != "" {
		return h[len(h)-1].By
	}
	return "somebody"
}
