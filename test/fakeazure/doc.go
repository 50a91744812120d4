// Package fakeazure answers as Azure Resource Manager and Entra's token endpoint do, over REST, so that a provisioner and the
// clients of workloads can be tested with Microsoft's own libraries. Its promise: what Microsoft documents as refused, or has
// been seen to refuse, is refused, with its code and sentence; a token of a cluster is exchanged only after the issuer's keys
// have been fetched over HTTPS, its signature (only RS256) checked, and its issuer, subject and audience compared with the
// federated credentials of one identity, letter by letter; and what an exchanged token may do is what roles give its identity.
//
// It stands for one tenant with one or more subscriptions: resource groups whose deletion ends later; user-assigned identities
// that are known to the directory only after a while; their federated credentials, with the limit of twenty, the unique pair of
// issuer and subject, one write at a time and the documented rates; role definitions, whose names are unique in the tenant, and
// assignments, which are immutable, inherited and given through groups; IDs in varying letter case; paging, throttling, faults
// and lost answers; and a relying party that keeps an issuer's keys for a while. Of storage there is nothing.
//
// A fake is a last resort. This one cannot show what Microsoft does not say: how long Entra keeps an issuer's keys (as
// Cache-Control says here) and whether it fetches again for an unknown kid (never here, before the copy
// lapses); in which order it checks a request that is wrong twice (client, issuer, subject, audience, time, key, signature
// here); how long changes take to be seen (none here, but for the delays in Options). Guessed are: the sentences for an
// algorithm other than RS256 (a wrong signature), for a token that does not have a claim or has white space around it, for a twenty-
// first federated credential, for wrong names, lengths, audiences and blanks of one; which of AADSTS50166, 501661 and 90061 is
// said when (an answer other than 200, no connection, a broken document); that a federated credential's write that overlaps
// another one fails rather than the first of the two; the answers to unknown filters; that a role in use cannot be deleted with
// 409; what remains of an exchange that came too early (nothing). A new client secret, conditional access,
// conditions of assignments, deny assignments, locks, policies, moving and soft deletion are left out. Predefined roles are few, and their
// actions shortened. Actions of custom roles are checked for their form only.
package fakeazure
