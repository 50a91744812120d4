// Package shells has bash, zsh and fish complete command lines of keypost, as somebody at a terminal does, with the scripts that
// keypost completion prints. The tests are built with the tag e2e; run installs the shells and runs them.
package shells
