package cloudcmd

import (
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
)

// EnvVar is a variable of the environment of an operator's pods.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// SubscriptionFlag is the name of the flag with which a command prints a Subscription's patch.
const SubscriptionFlag = "subscription-manifest"

// SubscriptionUsage is what that flag is for.
const SubscriptionUsage = "print a JSON patch that adds the identity to an operator's Subscription, and nothing else"

// PrintIdentity prints what the administrator of an operator needs to use an identity in the cloud: the variables of its Subscription's
// spec.config.env, after lines of their own; with manifest, only a patch of the Subscription. v is all of it for programs.
//
// https://olm.operatorframework.io/docs/advanced-tasks/configure-operators/
func (r *Run) PrintIdentity(v any, env []EnvVar, manifest bool, lines ...string) error {
	if manifest {
		return r.printSubscription(env)
	}
	return r.Print(v, func(w *terminal.Table) {
		for _, l := range lines {
			w.Row(l)
		}
		for _, e := range env {
			w.Row(e.Name + "=" + e.Value)
		}
	})
}

// printSubscription prints the patch, and how it is applied.
func (r *Run) printSubscription(env []EnvVar) error {
	var patch []map[string]any
	for _, e := range env {
		patch = append(patch, map[string]any{"op": "add", "path": "/spec/config/env/-", "value": e})
	}
	if r.Output == "table" {
		r.Output = "yaml" // people get the patch as YAML, too
		const oc = "  oc patch subscriptions.operators.coreos.com NAME -n NAMESPACE --type=json "
		r.Notice("put this into a file, and, once the operator's Subscription is there, add it to the env that it has:")
		r.Notice(oc + "--patch-file FILE")
		r.Notice("a Subscription without spec.config.env refuses that, and takes these first; they are refused where nothing is missing:")
		r.Notice(oc + `-p '[{"op":"test","path":"/spec/config","value":null},{"op":"add","path":"/spec/config","value":{}}]'`)
		r.Notice(oc + `-p '[{"op":"test","path":"/spec/config/env","value":null},{"op":"add","path":"/spec/config/env","value":[]}]'`)
	}
	return r.Print(patch, nil)
}
