// Package replicate brings key sets from one store into another. It promises that the destination is at every moment the
// last good state: whatever happens to the source, nothing is removed and nothing is replaced that package lastgood would
// not let replace it.
//
// [Mirror] does so all the time and [Copy] once. [ChangeFeed] calls for it when a store may have changed; publishers use it too.
package replicate
