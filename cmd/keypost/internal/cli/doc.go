// Package cli is what the commands of keypost have in common: the streams and global flags of a run ([Factory]), results
// as tables, JSON or YAML, errors with hints and exit codes, mistakes in what was typed, interrupts, and opening the key
// store that a run names. It promises that whatever a file, a server or a person wrote can be printed on a terminal, and
// that every command it prints can be pasted into a shell.
//
// A command is a few flags, one call into keystore, issuer or provision, and what it prints: a package per noun beside
// this one. Each exports NewCmdX(f *Factory), which returns the noun's cobra command, and has for each verb a constructor
// that binds the flags and a method run that does the work.
package cli
