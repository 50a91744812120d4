package party

const (
	kubeAPIServerPage1 = "https://kubernetes.io/docs/reference/access-authn-authz/authentication/"
	kubeAPIServerPage2 = "https://github.com/coreos/go-oidc/blob/v2.5.0/jwks.go"
	kubeAPIServerPage3 = "https://github.com/kubernetes/apiserver/blob/v0.37.0/plugin/pkg/authenticator/token/oidc/oidc.go"
)

// kubeAPIServer is a cluster that takes tokens of another one (AuthenticationConfiguration).
func kubeAPIServer() Party {
	return Party{
		Name: "kube-apiserver", Title: "kube-apiserver, structured authentication", OnMiss: true, Called: []string{"kubernetes", "k8s", "apiserver"},
		Given: []Fact{
			{
				Says:  "discovery",
				Page:  kubeAPIServerPage1,
				Quote: "The public key to verify the signature is discovered from the issuer's public endpoint using OIDC discovery.",
			},
		},
		Keeping: []Fact{
			{
				Says:  "for max-age, which a gate counts anyway",
				Page:  kubeAPIServerPage2,
				Quote: "The returned KeySet is a long lived verifier that caches keys based on cache-control headers.",
			},
			{
				Says: "a key that left is trusted until a token of an unknown key comes after that",
				Page: kubeAPIServerPage2,
				Quote: "If the keys have not expired, and an ID Token claims it was signed by a key not in the cache, if " +
					"and only if the keys expire in this amount of time, the keys will be updated.",
			},
		},
		Signed: Fact{
			Says:  "all of a key set's with a configuration file",
			Page:  "https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubeapiserver/options/authentication.go",
			Quote: "all known signing algs are allowed when using authentication config",
		},
		Audience: Fact{
			Says:  "`issuer.audiences`",
			Page:  kubeAPIServerPage1,
			Quote: "At least one of the entries must match the \"aud\" claim in presented JWTs.",
		},
		Limits: []Fact{
			{
				Says:  "not the cluster's own issuer",
				Page:  kubeAPIServerPage1,
				Quote: "url must not conflict with issuer configured in --service-account-issuer.",
			},
			{
				Says:  "a token that was taken is taken for 10 s more, whatever became of its key",
				Page:  "https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubeapiserver/options/authentication.go",
				Quote: "TokenSuccessCacheTTL: 10 * time.Second,",
			},
		},
		Fetch: Fact{
			Says: "`apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds`, from 1.36",
			Page: "https://github.com/kubernetes/apiserver/blob/v0.37.0/plugin/pkg/authenticator/token/oidc/metrics.go",
			Quote: "Timestamp of the last successful or failed JWKS fetch split by result, api server identity and jwt " +
				"issuer for the JWT authenticator.",
		},
		Ends: []Fact{
			{
				Says:  "a change of the configuration file, or a restart",
				Page:  kubeAPIServerPage1,
				Quote: "The API server also automatically reloads the authenticators when the configuration file is modified.",
			},
		},
		Refusals: kubeAPIServerRefusals(),
		Tried:    "test/e2e/run -run '^(TestRevoke|TestKubeAPIServerAnswers)$'",
		ends: []string{
			"kube-apiserver (of a cluster that trusts this issuer) without end, " + onlyUnknown + " {until}, restart it, or show it a token of a new signing key",
		},
	}
}

func kubeAPIServerRefusals() []Fact {
	return []Fact{
		{
			Says:  "wrong audience",
			Page:  "https://github.com/coreos/go-oidc/blob/v2.5.0/verify.go",
			Quote: "oidc: expected audience %q got %q",
		},
		{
			Says:  "wrong audience, where several are configured",
			Page:  kubeAPIServerPage3,
			Quote: "oidc: expected audience in %q got %q",
		},
		{
			Says:  "expired",
			Page:  kubeAPIServerPage3,
			Quote: "oidc: verify token: oidc: token is expired",
		},
		{
			Says:  "not ready",
			Page:  kubeAPIServerPage3,
			Quote: "oidc: authenticator not initialized",
		},
	}
}
