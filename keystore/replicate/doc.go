// Package replicate copies key sets from one store to another. Whatever happens to the source, the destination keeps the
// last good state: nothing is removed, and a version is replaced only by one that package lastgood lets follow it.
//
// [Copy] copies once. A [Mirror] goes on copying. A [ChangeFeed] triggers it when a store may have changed; publishers use
// one too. [Notes] keep a mirror's heartbeat in the directory of its copies.
package replicate
