// Package lastgood decides whether a version of a key set may replace the last good one. An accident never unpublishes
// anything: absence is not deletion, an issuer URL ends only with a tombstone, a key only with its line in gone, a gone
// key never returns, and no key set takes the issuer URL of another.
//
// Publisher and mirror both use it, so that they decide alike. A [Summary] has what the rules need to know of a version. A
// [Rejection] is the reason why a version does not replace the last good one. [Summary.Follows] has the rules for one key
// set. [Judge] has the one for several: who owns an issuer URL. A tombstone and its lines in gone bind their own key set
// only. The package does no I/O and does not log.
package lastgood
