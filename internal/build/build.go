// Package build says what a program was built from.
package build

import "runtime/debug"

// Version comes from what the Go toolchain stamps into the binary, so that packagers need no flags.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			version += " (" + s.Value + ")"
		}
	}
	return version
}
