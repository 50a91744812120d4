// Package provision registers what keypostd publishes with a cloud: desired state, a plan of ordered actions, and
// the files or calls that the plan becomes. It promises that a plan is shown in full before anything is changed.
package provision
