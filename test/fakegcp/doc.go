// Package fakegcp answers as Google's IAM, Resource Manager, Security Token Service and IAM Credentials do, over REST, so that
// a provisioner and the clients of workloads can be tested with Google's own libraries. Its promise: what Google documents as
// refused, or has been measured to refuse, is refused, with Google's code and sentence, and a subject token is accepted only
// after the issuer's keys have been fetched over HTTPS (or taken from the upload), its signature checked, its claims mapped
// and the provider's condition evaluated; an account's token is given only to whom the policies bind.
//
// It stands for one project: pools and providers with operations that end later, soft deletion and undeletion; service
// accounts that are known only after a while; custom roles; the policies of the project and of accounts with etags, versions
// and conditions; quotas, paging, faults, lost answers; and a relying party that caches an issuer's keys.
//
// A fake is a last resort. This one cannot show what Google does not say: how long STS keeps keys (as Cache-Control says here,
// five minutes without) and whether it fetches again for an unknown kid (never here, before the copy lapses); how long changes
// take to be seen; whether undeleting a pool revives its providers (ReviveProviders says); whether a token that has not expired
// is stale some time after it was issued, as some report (never here); in which order checks are made when a request is wrong
// twice. Guessed are the sentences for wrong IDs, lengths, masks, unreadable tokens and subjects that are missing; what is said
// to an algorithm other than RS256 and ES256 (as to an unknown kid); the answers to changing what is deleted
// (FAILED_PRECONDITION) and to deleting it again (NOT_FOUND); the types of operations' metadata; and that a pool cannot be seen
// before its operation is done. Google's documentation lets no token live for more than a day and has x5c refused in an upload,
// and so it is here; a measurement of September 2026 saw both accepted. An upload that a PATCH names and does not
// send stays. Guessed too is that a policy may keep a member of a pool that is deleted.
// Conditions of bindings are kept and never evaluated: they grant nothing. Of
// CEL there are the few forms that the tests use, and of a provider's attributes the subject is mapped and no other. Predefined roles are believed, and of
// them only Workload Identity User and Service Account Token Creator let impersonate. Quotas of pools, of providers and of
// reads are not kept.
//
// ccoctl's delete (of commit b187feee66f4, run in November 2026) also takes away what keypost gcp create-all has made: the accounts with
// their bindings, the pool with its provider, or with both after keypost gcp migrate, and the custom roles if they are asked for. It
// says that there is no bucket, and exits with 0. Another installation and accounts of create-service-account stay whole, keypost's
// delete finds nothing left, and create-all brings pool, provider and accounts back.
package fakegcp
