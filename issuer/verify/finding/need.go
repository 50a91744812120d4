package finding

import "slices"

// Need is what a look has to be given before it can see a cause; without it, that nothing was found says nothing.
type Need string

// What looks need.
const (
	NeedStore     Need = "store"      // the key set, to compare with
	NeedAddresses Need = "addresses"  // the host's own addresses, of which --connect asks none
	NeedCluster   Need = "cluster"    // a kubeconfig
	NeedToken     Need = "token"      // a token that a pod has
	NeedRefused   Need = "refused"    // such a token that the API server refuses: others have other audiences
	NeedRole      Need = "role"       // the role, and credentials of its account
	NeedAssume    Need = "assume"     // the role assumed with the token
	NeedPod       Need = "pod"        // what only the pod's own place shows: its files, network and region, and what its program asks for
	NeedRights    Need = "permission" // what the role itself may do
)

// Needs returns what a look needs to be given to see the cause; a cause of what an issuer serves needs nothing.
func (c Cause) Needs() []Need {
	if needs, own := needsOfCode()[c.Code]; own {
		return needs
	}
	return needsOfCheck()[c.Check]
}

func needsOfCheck() map[string][]Need {
	all := map[string][]Need{
		"addresses": {NeedAddresses}, "same-keys": {NeedAddresses}, "origin": {NeedStore}, "stored-keys": {NeedStore}, "active-key": {NeedStore}, "uploads": {NeedStore},
		"aws-access": {NeedRole}, "aws-provider": {NeedRole}, "aws-thumbprint": {NeedRole}, "aws-client-id": {NeedRole, NeedToken}, "aws-role": {NeedRole},
		"aws-trust": {NeedRole, NeedToken}, "aws-assume": {NeedRole, NeedToken, NeedAssume}, "aws-pod": {NeedPod}, "aws-permissions": {NeedRights},
		"cluster-review": {NeedCluster, NeedToken},
	}
	for _, check := range []string{"cluster-reach", "cluster-rights", "cluster-token", "cluster-issuer", "cluster-key", "cluster-keys", "cluster-audiences", "cluster-servers", "cluster-look"} {
		all[check] = []Need{NeedCluster}
	}
	for _, check := range []string{"token-form", "token-issuer", "token-kid", "token-signature", "token-time", "token-claims", "token-look"} {
		all[check] = []Need{NeedToken}
	}
	return all
}

// needsOfCode are those of causes that need other things than what their check looks at besides.
func needsOfCode() map[string][]Need {
	all := map[string][]Need{
		"dns-none":                 {NeedAddresses},
		"cluster-audience-lacking": {NeedCluster, NeedToken, NeedRefused},
		"aws-sts-unreachable":      {NeedPod}, "aws-sts-region": {NeedPod}, "aws-session": {NeedPod},
	}
	for _, code := range []string{"cluster-key-gone", "cluster-key-next", "cluster-key-retired"} {
		all[code] = []Need{NeedCluster, NeedStore}
	}
	for _, code := range []string{"token-kid-gone", "token-kid-unpublished", "token-kid-next"} {
		all[code] = []Need{NeedToken, NeedStore}
	}
	for _, code := range uncompared() {
		all[code] = nil
	}
	return all
}

// Uncompared reports whether a code says that nothing was compared with a store.
func Uncompared(code string) bool { return slices.Contains(uncompared(), code) }

func uncompared() []string {
	return []string{"store-none", "store-unknown", "store-unread", "store-withdrawn", "store-other-url", "not-compared"}
}
