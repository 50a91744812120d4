//go:build race

package contract

// race is what keypostd is built with: what watches the tests watches it too.
const race = "-race"
