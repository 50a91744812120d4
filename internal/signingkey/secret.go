package signingkey

import "encoding/json"

// The members of the Secret in which OpenShift keeps the pair that its kube-apiservers sign with next.
//
// Source: openshift/cluster-kube-apiserver-operator, pkg/operator/boundsatokensignercontroller/controller.go
const (
	SecretPrivate = "service-account.key"
	SecretPublic  = "service-account.pub"
)

// SecretData returns the pair as the data of a Kubernetes Secret, in JSON. Anyone who asks sends it to a kube-apiserver, which
// stores it, and keeps nothing.
func (p Private) SecretData() (json.RawMessage, error) {
	private, err := p.privatePEM()
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string][]byte{SecretPrivate: private, SecretPublic: []byte(p.public.PEM())})
}
