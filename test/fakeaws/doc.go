// Package fakeaws answers as IAM and STS do, over the AWS Query protocol, so that a provisioner can be tested with the
// real SDK and the real command line client. Its promise: what AWS documents as refused is refused, with AWS's code and
// sentence, and a web identity token is accepted only after the issuer's keys have been fetched, its signature checked
// and the role's trust policy evaluated.
//
// It stands for the control plane of one account (IAM) and for STS in one region: limits, conflicts, paging, URL-encoded
// policies, eventual consistency, throttling, and a relying party that caches an issuer's keys.
//
// A fake is a last resort. This one cannot show what AWS does not say: how long STS caches keys that come without
// Cache-Control (five minutes here) and whether it fetches again for an unknown kid (never here, before the copy lapses);
// the true rate limits; in which order AWS makes its checks when a request is wrong twice; the sentence for a bad
// signature under a published kid; what becomes of a token with several audiences (refused here). Service control
// policies, session policies and conditions of identity policies are not evaluated, and an ARN of AWS's own managed
// policies is believed. The trust policy's 2,048 characters are counted with white space, which AWS may count without.
package fakeaws
