package enroll

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/issuer"
)

// ControlPlane is the KubeadmControlPlane of Cluster API that writes a cluster's flags. It has no name where there is none, or where a
// ClusterClass writes it.
type ControlPlane struct{ Namespace, Name string }

// issuerFlag is what an issuer of before may be, so that nothing but a URL gets into the flags of an API server. Its length is not
// part of it: counting in a pattern costs each start of keypost 8 ms.
var issuerFlag = regexp.MustCompile(`^https://[A-Za-z0-9][A-Za-z0-9._~:/-]*$`)

// flagsOf returns those of a kube-apiserver that is to call itself url: with it it signs, and tokens of the issuer before stay good.
// There are none if it does so already, or if what it calls itself is not a URL.
func flagsOf(url, own string) []string {
	if own == url || len(own) > 500 || !issuerFlag.MatchString(own) {
		return nil
	}
	const flag = "--service-account-issuer="
	return []string{flag + url, flag + own, "--service-account-jwks-uri=" + url + issuer.JWKSPath}
}

// Rounds are two manifests for kubectl apply --server-side that give a cluster's control plane those flags: with the first, every API
// server accepts tokens of the issuer URL; with the second, which is for when the first has been rolled out, they sign as it.
func (r Report) Rounds() (accept, sign []byte, err error) {
	if r.ControlPlane.Name == "" || len(r.Flags) == 0 {
		return nil, nil, errors.New("no KubeadmControlPlane to change")
	}
	if accept, err = r.round(r.Own, r.URL, ""); err != nil {
		return nil, nil, err
	}
	sign, err = r.round(r.URL, r.Own, r.URL+issuer.JWKSPath)
	return accept, sign, err
}

// round makes a manifest with which first signs and second is accepted. A name stands once among extraArgs, so the second one comes by a
// patch of kubeadm's.
func (r Report) round(first, second, jwksURI string) ([]byte, error) {
	type m = map[string]any
	patch, err := json.Marshal([]m{{"op": "add", "path": "/spec/containers/0/command/-", "value": "--service-account-issuer=" + second}})
	if err != nil {
		return nil, fmt.Errorf("write kubeadm's patch: %w", err)
	}
	const dir = "/etc/kubernetes/patches"
	args := []m{{"name": "service-account-issuer", "value": first}}
	if jwksURI != "" {
		args = append(args, m{"name": "service-account-jwks-uri", "value": jwksURI})
	}
	return yaml.Marshal(m{
		"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
		"metadata": m{"namespace": r.ControlPlane.Namespace, "name": r.ControlPlane.Name},
		"spec": m{"kubeadmConfigSpec": m{
			"clusterConfiguration": m{"apiServer": m{"extraArgs": args}},
			"files":                []m{{"path": dir + "/kube-apiserver0+json.json", "content": string(patch)}},
			"initConfiguration":    m{"patches": m{"directory": dir}},
			"joinConfiguration":    m{"patches": m{"directory": dir}},
		}},
	})
}
