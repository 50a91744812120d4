// Package replicas runs what a company would run: three keypostd, each with a keypost mirror beside it, on one store,
// behind a balancer, with a thousand issuers. Relying parties ask and verify all the time while keys are added and
// revoked, replicas are stopped, killed and replaced, and the store is away for longer than every cache. It promises
// that not one document request fails, that equal generations have equal bytes and ETags everywhere, and that after
// the outage a change is served by the time at which everything is listed again.
//
// It takes minutes and has the build tag e2e_full: make e2e-full, or go test -tags e2e_full ./test/replicas
// (KEYPOST_ISSUERS sets how many issuers there are).
package replicas
