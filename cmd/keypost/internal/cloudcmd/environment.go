package cloudcmd

import (
	"text/tabwriter"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
)

// EnvVar is a variable of the environment of an operator's pods.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// SubscriptionFlag is the name of the flag with which a command prints a Subscription's patch.
const SubscriptionFlag = "subscription-manifest"

// SubscriptionUsage is what that flag is for.
const SubscriptionUsage = "print a patch that puts the identity into an operator's Subscription, and nothing else"

// PrintIdentity prints what the administrator of an operator needs to use an identity in the cloud: the variables of its Subscription's
// spec.config.env, after lines of their own; with manifest, a patch of the Subscription alone. v is all of it for programs.
//
// https://olm.operatorframework.io/docs/advanced-tasks/configure-operators/
func (r *Run) PrintIdentity(v any, env []EnvVar, manifest bool, lines ...string) error {
	if manifest {
		return r.printSubscription(env)
	}
	return r.Print(v, func(w *tabwriter.Writer) {
		for _, l := range lines {
			cli.Row(w, l)
		}
		for _, e := range env {
			cli.Row(w, e.Name+"="+e.Value)
		}
	})
}

// printSubscription prints the patch, and how it is applied.
func (r *Run) printSubscription(env []EnvVar) error {
	patch := map[string]any{"spec": map[string]any{"config": map[string]any{"env": env}}}
	if r.Output == "table" {
		r.Output = "yaml" // which is what the patch is for people, too
		r.Notice("put this into a file, and, once the operator's Subscription is there (it replaces the env that it has):")
		r.Notice("  oc patch subscriptions.operators.coreos.com NAME -n NAMESPACE --type=merge --patch-file FILE")
	}
	return r.Print(patch, nil)
}
