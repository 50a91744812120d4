// Package lastgood decides what may take the place of the last good version of a key set. It promises that absence is
// never deletion and that accident never unpublishes: an issuer URL goes only by a tombstone, a key only by its line in
// gone, what is gone does not come back, and no key set takes another one's issuer.
//
// Every reader of a store that serves or copies key sets asks it, so that all of them decide alike. [Summary] is what is
// kept of a version, [Rejection] why another one does not take its place, [Summary.Follows] the rules for one key set,
// and [Judge] those for several: who owns an issuer URL, and which keys left it. It knows no store and no log.
package lastgood
