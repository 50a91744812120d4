// Package ccoctl holds what an installation of OpenShift and scripts written for ccoctl expect, byte for byte: the names
// and contents of files, the names of roles, and the lines of the log. It promises that a file of the output directory is
// never seen half written. It makes no network calls.
//
// Source: github.com/openshift/cloud-credential-operator, pkg/cmd/provisioning/aws.
package ccoctl
