package gcp

import (
	"context"
	"slices"
	"strings"

	"github.com/keypost/keypost/provision/credrequest"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// DeleteOptions say what to take away of an installation.
type DeleteOptions struct {
	Options
	Requests    string // directory with the CredentialsRequests, by which more of ccoctl's accounts are found; may be empty
	CustomRoles bool   // also the custom roles that no other account has
}

// Deleted is what [Delete] did.
type Deleted struct {
	Preview *plan.Preview // with mode Preview; the others are empty then
	Issuers []install.StillPublished
	Copies  []install.StillNamed // key sets whose policy names copies that providers of the pool held
}

// Delete deletes the accounts of an installation with their bindings, and its pool with the provider.
func Delete(ctx context.Context, o DeleteOptions) (Deleted, error) {
	r := newRun(o.Options)
	d := iam.Deletion{Name: o.Name, Pool: o.PoolID, CustomRoles: o.CustomRoles}
	if o.Requests != "" {
		var skipped []string
		var err error
		if d.Requests, skipped, err = requestNames(o.Requests); err != nil {
			return Deleted{}, err
		}
		r.Lines(skipped)
	}
	if err := r.identify(ctx); err != nil {
		return Deleted{}, err
	}
	p, trusted, err := r.client.PlanDelete(ctx, d)
	if err != nil {
		return Deleted{}, err
	}
	if preview, err := r.carryOut(ctx, p); err != nil || preview != nil {
		return Deleted{Preview: preview}, err
	}
	if p.Empty() {
		r.Line("Nothing in project %s belongs to %s", r.project.ID, o.Name)
	}
	if trusted.Stays {
		return Deleted{}, nil
	}
	of := copyParty(r.project.ProviderName(o.pool().ID, ""))
	copies := r.StillNamed(ctx, func(party string) bool { return strings.HasPrefix(party, of) })
	return Deleted{Issuers: r.StillPublished(ctx, trusted.Issuers), Copies: copies}, nil
}

// requestNames returns the names of the CredentialsRequests in a directory that ask for an account, whatever feature set they are for:
// nobody knows with which flag the accounts were made. skipped are the lines about what is left out whatever the set.
func requestNames(dir string) (names, skipped []string, err error) {
	for _, techPreview := range []bool{false, true} {
		requests, lines, err := credrequest.ReadDir(credrequest.GCP, dir, techPreview)
		if err != nil {
			return nil, nil, err
		}
		for _, q := range requests {
			if !q.HasIdentity() {
				names = append(names, q.Name)
			}
		}
		if !techPreview {
			skipped = lines
			continue
		}
		skipped = slices.DeleteFunc(skipped, func(line string) bool { return !slices.Contains(lines, line) })
	}
	slices.Sort(names)
	return slices.Compact(names), skipped, nil
}
