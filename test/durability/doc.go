// Package durability shows with real processes, system calls and file systems what package filestore promises: a
// change that was reported survives, one that was not is there as a whole or not at all, and no writer undoes another.
//
// KEYPOST_KILLS and KEYPOST_UPDATES make the long runs longer.
package durability
