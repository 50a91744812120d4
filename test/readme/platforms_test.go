package readme

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// platformCommands are the forms of other programs' commands in docs/platforms, docs/install.md and provision/{gcp,azure}, as their own
// documentation has them; the pages of docs/platforms link to it. kubeadm's were run with kubeadm v1.34.4; gcloud's were read by Google
// Cloud SDK 528.0.0 until it asked for an account. az's are as https://learn.microsoft.com/cli/azure/reference-index has them.
var platformCommands = map[string][]string{
	"kubeadm":   {`init phase control-plane (apiserver|controller-manager)( --config \S+\.yaml)?`, `init phase upload-config kubeadm --config \S+\.yaml`, `config migrate( --old-config \S+ --new-config \S+)?`, `upgrade`},
	"k3s":       {`certificate rotate-ca( --path=/opt/\w+/server)?`},
	"rke2":      {`certificate rotate-ca --path=/opt/\w+/server`},
	"systemctl": {`restart (k3s|rke2-server|keypostd)`, `daemon-reload`, `(enable|disable) --now( keypost(d|-mirror|-watch))+`},
	"talosctl":  {`-n [\d.]+ patch machineconfig --patch @\S+\.yaml`, `-n [\d.]+ get machineconfig -o yaml`, `-n [\d.]+ read /system/secrets/kubernetes/kube-apiserver/service-account\.pub`},
	"kops": {`create keypair service-account( --key \S+)?`, `(promote|distrust) keypair service-account( ID)?`, `get keypairs service-account`, `update cluster --yes`,
		`rolling-update cluster( --yes)?`},
	"gcloud": {`iam workload-identity-pools providers update-oidc PROVIDER --attribute-mapping MAPPING`, `projects remove-iam-policy-binding \S+ --member serviceAccount:\S+@\S+ --role roles/\S+ --condition None`, `iam service-accounts delete \S+@\S+ --project \S+`},
	"az": {`login`, `role assignment list --all --assignee \$\(az identity show .*\) --query \[\]\.id --output tsv`, `identity show --name \S+ --resource-group \S+ --query principalId --output tsv`,
		`identity delete --name \S+ --resource-group \S+`, `role definition delete --name \S+`},
	"xargs":   {`az role assignment delete --ids`},
	"cp":      {`-p /var/lib/rancher/(k3s|rke2)/server/tls/service\.key /opt/next/old\.key`, `/opt/next/sa\.key /opt/only/server/tls/service\.key`},
	"umask":   {`077`},
	"mkdir":   {`-p (/opt/\w+/server/tls|~/\.[\w./-]+)`, `-p -m 700 /run/keypost-signer`},
	"install": {`-d /etc/keypost /var/lib/keypost`, `-m 0644 systemd/keypostd\.service /etc/systemd/system/`},
	"rm":      {`/etc/systemd/system/keypostd\.service`},
	"cat":     {`/\S+ /\S+`},
}

// checkPlatform returns how commands of a program are checked.
func checkPlatform(program string) func(*testing.T, []string) error {
	return func(_ *testing.T, args []string) error {
		for _, form := range platformCommands[program] {
			if regexp.MustCompile(`^` + form + `$`).MatchString(strings.Join(args, " ")) {
				return nil
			}
		}
		return fmt.Errorf("%s is not known to take that: compare it with its documentation, and add its form here", program)
	}
}
