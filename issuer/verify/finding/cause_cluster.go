package finding

// clusterCauses are what can be wrong with the cluster whose tokens an issuer stands for.
func clusterCauses() []Cause {
	return []Cause{
		{"cluster-unreachable", "cluster-reach", "the cluster cannot be asked", nil, "", "see that the kubeconfig's server is right and reachable from here (kubectl version)"},
		{"cluster-unauthorized", "cluster-reach", "the cluster does not accept the kubeconfig's credentials", unauthorized(), "", "log in to the cluster anew, or give another --context"},
		{"cluster-forbidden", "cluster-rights", "the kubeconfig's user may not look", nil, "what cannot be read is not checked", "have an administrator of the cluster grant it"},
		{"cluster-account-missing", "cluster-token", "the service account to mint a token for does not exist", nil, "", "give another with --service-account NAMESPACE/NAME"},
		{"cluster-token-refused", "cluster-token", "a kube-apiserver mints no token", nil, "pods get none either", "see the log of the kube-apiserver, and try it by hand: kubectl create token SERVICEACCOUNT"},
		{
			"cluster-key-lacking", "cluster-keys", "a kube-apiserver does not trust the key that another one signs with", unknownBearer(), "what runs in pods with tokens of the one gets 401 from the other",
			"give every kube-apiserver the public half of each key (--service-account-key-file) before one of them signs with it",
		},
		{
			"cluster-issuer-order", "cluster-issuer", "the cluster accepts the issuer and signs as another one", otherIssuer(), "",
			"restart every kube-apiserver with the issuer URL as the first --service-account-issuer: the first one signs",
		},
		{
			"cluster-issuer-other", "cluster-issuer", "the cluster signs as another issuer", otherIssuer(), "",
			"restart every kube-apiserver with the issuer URL as the first --service-account-issuer, and its present one as the second",
		},
		{
			"cluster-key-unchecked", "cluster-look", "the key that the cluster signs with was not compared", nil, "nobody knows whether its tokens would be taken",
			"repair what fails besides, and look again",
		},
		{
			"cluster-key-gone", "cluster-key", "the cluster signs with a key that was revoked or removed", keyUnknown(), "a key that is gone never returns: every token that the cluster makes is refused",
			"let every kube-apiserver sign with the published key (--service-account-signing-key-file), and the controller-manager too",
		},
		{
			"cluster-key-unpublished", "cluster-key", "the cluster signs with a key that is not published", keyUnknown(), "",
			"publish it: keypost key add ISSUER --kubeconfig FILE",
		},
		{
			"cluster-key-swapped", "cluster-key", "the cluster signs with another key than the one that is published under its kid", signatureWrong(), "",
			"find out whose key is published (keypost key list ISSUER), and revoke it if it is not yours: keypost key revoke ISSUER KID --why REASON",
		},
		{
			"cluster-key-next", "cluster-key", "the cluster signs with a key that may not sign yet", keyUnknown(), "relying parties and caches that hold an older copy refuse its tokens, the others take them",
			"let every kube-apiserver sign with the key before it (--service-account-signing-key-file), and the controller-manager too, until this one is promoted: keypost key promote ISSUER KID --wait",
		},
		{
			"cluster-key-retired", "cluster-key", "the cluster signs with a key that is retired", nil, "every token that it makes is refused once the key is removed",
			"let every kube-apiserver sign with the active key (--service-account-signing-key-file), and the controller-manager too",
		},
		{"cluster-servers-unasked", "cluster-servers", "not every kube-apiserver could be asked", nil, "one that was not restarted goes on signing as before", "run it again where the addresses of all kube-apiservers can be reached"},
		{"cluster-keys-unread", "cluster-keys", "the keys that the cluster trusts cannot be read", nil, "", "see kubectl get --raw /openid/v1/jwks"},
		{
			"cluster-key-stranger", "cluster-keys", "a published key is none of the cluster's", nil, "whoever has its private half makes tokens that clouds accept",
			"add it to --service-account-key-file if the cluster is to sign with it; if no cluster is, keypost key retire ISSUER KID --why REASON",
		},
		{
			"cluster-audience-lacking", "cluster-audiences", "--api-audiences lacks the audience of tokens that pods still have",
			append([]Answer{{KubeAPIServer, "is invalid for the target audiences"}}, unauthorized()...), "what runs in the pods gets 401 from the API server until it has a new token",
			"restart every kube-apiserver with the old issuer in --api-audiences as well, until every pod has a new token",
		},
		{
			"cluster-review-failed", "cluster-review", "the API server refuses the token", unknownBearer(), "",
			"make a new token (kubectl create token SERVICEACCOUNT); if that is refused too, see the log of the kube-apiserver",
		},
		{
			"cluster-audience-cloud", "cluster-audiences", "a cloud's audience is one of the cluster's own (--api-audiences)",
			[]Answer{{GCP, "invalid_grant: ID Token issued at"}},
			"the token that every pod has is good for the cloud, lives for up to a year, and its key cannot be removed before; tokens made for the cloud are good for the API server",
			"restart every kube-apiserver without it in --api-audiences",
		},
	}
}
