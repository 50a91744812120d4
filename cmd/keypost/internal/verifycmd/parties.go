package verifycmd

import (
	"context"
	"slices"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/answers"
	"github.com/keypost/keypost/issuer/verify/audience"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/issuer/verify/token"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/webidentity"
)

// examine looks at an issuer, and at the cluster and the role that the flags name. The first failure of all is the cause to
// repair first.
func (opts *verifyOptions) examine(ctx context.Context, t target, causes []finding.Cause) ([]finding.Finding, error) {
	seen := verify.Examine(ctx, t.Options)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	all := seen.Findings
	if t.parties && opts.cluster.Kubeconfig != "" {
		found, err := cluster.Verify(ctx, opts.cluster, wanted(t, seen))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	if t.parties && opts.roleARN != "" {
		found, err := opts.examineRole(ctx, t, seen, causes)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	answers.Explain(all)
	finding.Sort(all)
	return all, nil
}

// wanted returns what the cluster is compared with.
func wanted(t target, seen verify.Examination) cluster.Wanted {
	w := cluster.Wanted{Issuer: t.URL, Audiences: token.Read(t.Token).Audiences, Published: seen.Keys, Set: *t.set}
	if len(w.Audiences) == 0 {
		w.Audiences = audience.ToTry(t.declared())
	}
	return w
}

// examineRole looks at the role, and with --assume assumes it. The causes are those of an error that was given.
func (opts *verifyOptions) examineRole(ctx context.Context, t target, seen verify.Examination, causes []finding.Cause) ([]finding.Finding, error) {
	client, err := awsiam.Open(ctx, awsiam.Options{OnWait: func(w awsiam.Wait) { opts.f.Notice("%v", w) }})
	if err != nil {
		return nil, err
	}
	claims := token.Read(t.Token)
	a := webidentity.Attempt{Issuer: t.URL, Subject: claims.Subject, Chain: seen.Chain, PublicCA: seen.PublicCA, OwnCA: t.RootCAs != nil}
	if len(claims.Audiences) == 1 { // what AWS makes of several is not documented
		a.Audience = claims.Audiences[0]
	}
	var assumed []finding.Finding
	if opts.assume {
		assumed = append(assumed, webidentity.Assume(ctx, client, opts.roleARN, t.Token))
		causes = append(causes, answers.Causes(assumed[0].Evidence)...)
	}
	// Which CAs AWS trusts by itself is not published. The system's trust is a guess that AWS's own words overrule.
	if slices.ContainsFunc(causes, func(c finding.Cause) bool { return c.Code == "aws-thumbprint-stale" }) {
		a.PublicCA = false
	}
	found, err := webidentity.Verify(ctx, client, opts.roleARN, a)
	return append(found, assumed...), err
}
