//go:build !race

package contract

const race = "-race=false"
