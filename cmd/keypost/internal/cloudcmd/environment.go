package cloudcmd

import (
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
)

// EnvVar is a variable of the environment of an operator's pods.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// PrintIdentity prints what the administrator of an operator needs to use an identity in the cloud: the variables of its Subscription's
// spec.config.env, after lines of their own. v is all of it for programs.
//
// https://olm.operatorframework.io/docs/advanced-tasks/configure-operators/
func (r *Run) PrintIdentity(v any, env []EnvVar, lines ...string) error {
	return r.Print(v, func(w *terminal.Table) {
		for _, l := range lines {
			w.Row(l)
		}
		for _, e := range env {
			w.Row(e.Name + "=" + e.Value)
		}
	})
}
