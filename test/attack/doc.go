// Package attack does to keypostd what strangers do to servers in public, and asks an honest relying party what it
// notices. A server that gives way to an attack of a few connections takes every cluster's workload identity with it.
//
// The ordinary tests are short: a bound each. The whole table, with the build tag e2e_full, runs every attack against
// keypostd in a memory cgroup and against nginx with the same bytes: test/attack/run.
//
// Everything is sent to loopback, by processes of low priority that end by themselves.
package attack
