package gcp

import (
	"fmt"
	"strings"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/internal/allow"
)

// The scripts of a dry run send what the verbs would, with curl and the access token of gcloud. Their names are ccoctl's. What
// adds to a policy is left to gcloud, which reads it first and keeps what others have put there.

// script returns a dry-run script.
func script(name, what string, commands ...string) ccoctl.File {
	return ccoctl.Script(name, what, "#!/bin/sh\nset -eu\n"+strings.Join(commands, "\n")+"\n")
}

// post returns the command that sends a body to a method of IAM. The token goes through a pipe: everybody sees arguments.
func post(path string, body []byte) string {
	return fmt.Sprintf(`printf 'header = "Authorization: Bearer %%s"\n' "$(gcloud auth print-access-token)" |
  curl --config - --fail --silent --show-error --header 'Content-Type: application/json' \
  --data %s \
  %s`, text.Quoted(string(body)), text.Quoted("https://iam.googleapis.com/v1/"+path))
}

// await returns the commands that wait until what was just made is there: Google makes it in its own time.
func await(path string) string {
	return fmt.Sprintf(`n=0
until printf 'header = "Authorization: Bearer %%s"\n' "$(gcloud auth print-access-token)" |
  curl --config - --fail --silent %s | grep -q ACTIVE; do
  n=$((n + 1))
  [ "$n" -le 60 ] || { echo "it is not there after a minute" >&2; exit 1; }
  sleep 1
done`, text.Quoted("https://iam.googleapis.com/v1/"+path))
}

// poolScript returns the script that makes the pool.
func (r *run) poolScript() ccoctl.File {
	p, pools := r.o.pool(), fmt.Sprintf("projects/%s/locations/global/workloadIdentityPools", r.o.Project)
	return script(ccoctl.GCPPoolScript, "to create workload identity pool",
		post(pools+"?workloadIdentityPoolId="+p.ID, p.CreateJSON()), await(pools+"/"+p.ID))
}

// providerScript returns the script that makes the provider.
func (r *run) providerScript(jwks []byte) ccoctl.File {
	p := r.o.provider(jwks, "")
	providers := fmt.Sprintf("projects/%s/locations/global/workloadIdentityPools/%s/providers", r.o.Project, p.Pool)
	body, _ := p.CreateJSON() // the keys to upload are one, and checked
	return script(ccoctl.GCPProviderScript, "to create workload identity provider",
		post(providers+"?workloadIdentityPoolProviderId="+p.ID, body), await(providers+"/"+p.ID))
}

// accountFiles returns the scripts that make the accounts, numbered by their CredentialsRequests, and the Secrets to fill in.
func (r *run) accountFiles(set requestSet) []ccoctl.File {
	var files []ccoctl.File
	next := 0
	for i, q := range set.requests {
		s := ccoctl.GCPSecret{Namespace: q.SecretNamespace, Name: q.SecretName, TokenPath: q.CloudTokenPath,
			Provider: q.GCP.Audience, Email: q.GCP.ServiceAccountEmail}
		if !q.HasIdentity() {
			scripts := r.accountScripts(i, next, set.wanted)
			s.Script = r.Path(scripts[len(scripts)-1].Name)
			files = append(files, scripts...)
			next++
		}
		files = append(files, s.File())
	}
	return files
}

// accountScripts returns the scripts of the i-th account; number is its CredentialsRequest's. The project's number is asked of
// gcloud when they run.
func (r *run) accountScripts(number, i int, wanted iam.Accounts) []ccoctl.File {
	project, a := text.Quoted(r.o.Project), wanted.List[i]
	display := wanted.DisplayName(a)
	account, role, bindings, config := ccoctl.GCPAccountScripts(number, display)
	email := federation.Project{ID: r.o.Project}.Email(wanted.ID(a))
	member := text.Quoted("serviceAccount:" + email)
	const ask = `project=$(gcloud projects describe %s --format='value(projectId)')
number=$(gcloud projects describe %[1]s --format='value(projectNumber)')`
	known := fmt.Sprintf(ask, project)

	files := []ccoctl.File{script(account, "to create IAM service account "+display, post("projects/"+r.o.Project+"/serviceAccounts", wanted.CreateJSON(i)))}
	bind := []string{known}
	add := func(to, member, role string) {
		bind = append(bind, fmt.Sprintf("gcloud %s --member=%s --role=%s --condition=None --project %s", to, member, role, project))
	}
	if body := wanted.RoleJSON(i, r.o.Project); body != nil {
		files = append(files, script(role, "to create IAM custom role for "+display, post("projects/"+r.o.Project+"/roles", body)))
		add(`projects add-iam-policy-binding "$project"`, member, `"projects/$project/roles/`+a.RoleID(r.o.Project)+`"`)
	}
	for _, name := range a.Roles {
		add(`projects add-iam-policy-binding "$project"`, member, text.Quoted(name))
	}
	for _, subject := range a.Subjects {
		add("iam service-accounts add-iam-policy-binding "+email, fmt.Sprintf(
			`"principal://iam.googleapis.com/projects/$number/locations/global/workloadIdentityPools/%s/subject/%s"`, wanted.Pool, subject), allow.UserRole)
	}
	return append(files, script(bindings, "to add the policy bindings of "+display, bind...),
		script(config, "to generate the credentials configuration of "+display, known, fmt.Sprintf(
			`gcloud iam workload-identity-pools create-cred-config \
  "projects/$number/locations/global/workloadIdentityPools/%s/providers/%s" \
  --service-account=%s --credential-source-type=text \
  --credential-source-file=/var/run/secrets/openshift/serviceaccount/token --output-file=%s`, r.o.PoolID, r.o.ProviderID, email, text.Quoted(display+"_credentials_config.json"))))
}
