package finding

import "slices"

// tokenCauses are what can be wrong with a service account token, in the order in which STS looks at it.
func tokenCauses() []Cause {
	return slices.Concat(formCauses(), signerCauses(), timeCauses(), claimCauses())
}

func formCauses() []Cause {
	return []Cause{
		{
			"token-unchecked", "token-look", "the token was not checked", nil, "nobody knows whether it would be taken",
			"repair what fails besides, and look again",
		},
		{
			"token-malformed", "token-form", "the token is no signed JWT", append(malformed(), unknownBearer()...), "",
			"make one with " + MakeToken + ", and give the whole of it",
		},
		{
			"token-too-long", "token-form", "the token is too long for STS",
			[]Answer{{AWS, `ValidationError: 1 validation error detected: Value at 'webIdentityToken' failed to satisfy constraint: Member must have length less than or equal to 20000`}}, "",
			"make one with " + MakeToken,
		},
		{
			"token-numbers", "token-form", "the token's times are no integers", []Answer{{AWS, awsNoJWT}}, "others take fractions",
			"find what rewrites the token: kube-apiserver writes exp, iat and nbf as integers",
		},
		{
			"token-issuer-slash", "token-issuer", "the token's iss and the issuer URL differ by a slash at the end", otherIssuer(), "",
			"leave the slash out everywhere: restart every kube-apiserver with the issuer URL as its first --service-account-issuer, and its present one as the second, or every running pod gets 401; then make a new token",
		},
		{
			"token-issuer-case", "token-issuer", "the token's iss and the issuer URL differ in letter case", append(otherIssuer(), Answer{Entra, "AADSTS7002138"}), "",
			"write both in the same case: restart every kube-apiserver with the issuer URL as its first --service-account-issuer, and its present one as the second, or every running pod gets 401; then make a new token",
		},
		{
			"token-issuer-legacy", "token-issuer", "the token is of the old kind that lives in a Secret",
			append([]Answer{{AWS, `InvalidIdentityToken: Missing a required claim: aud`}, {Entra, "AADSTS700211"}, {Vault, "invalid issuer (iss) claim"}}, unauthorized()...), "",
			"mount a projected token with an audience, or make one with " + MakeToken,
		},
		{
			"token-issuer-other", "token-issuer", "the token is of another issuer", otherIssuer(), "",
			"if it is a token of this cluster: restart every kube-apiserver with the issuer URL as its first --service-account-issuer, and its present one as the second, or every running pod gets 401; then make a new token",
		},
	}
}

func signerCauses() []Cause {
	return []Cause{
		{
			"token-alg", "token-form", "the token is signed with an algorithm that clouds do not accept",
			[]Answer{{AWS, awsNoJWT}, {AWS, awsNoKey}, {Entra, "AADSTS700027"}, {Vault, "oidc: malformed jwt"}, {KubeAPIServer, "oidc: id token signed with unsupported algorithm"}}, "kube-apiserver and Vault take PS256, PS384 and PS512 too",
			"give the cluster an RSA or ECDSA key (keypost key generate --out DIR); it then signs with RS256, ES256, ES384 or ES512",
		},
		{
			"token-kid-missing", "token-kid", "the token names no key", []Answer{{AWS, awsNoKey}, {GCP, "invalid_grant"}}, "go-oidc (Vault, kube-apiserver) tries every key",
			"make a token with a kube-apiserver of 1.16 or later: older ones name no key",
		},
		{
			"token-kid-gone", "token-kid", "the key of the token was removed", append(keyUnknown(), Answer{KubeAPIServer, invalidBearer}), "",
			"make a new token; if the new one has this key too, the cluster still signs with it, and a key that is gone never returns: give the cluster a new one (keypost key generate --out DIR), and publish it: keypost key add ISSUER --public-key-file DIR/sa.pub",
		},
		{
			"token-kid-unpublished", "token-kid", "the key of the token is stored but not public yet", keyUnknown(), "",
			"let the cluster sign with its old key until the new one may sign: keypost key promote ISSUER KID --wait",
		},
		{
			"token-kid-next", "token-kid", "the token is signed by a key that may not sign yet", keyUnknown(), "relying parties and caches that hold an older copy refuse it, the others take it",
			"let every kube-apiserver sign with the key before it again until this one is promoted: keypost key promote ISSUER KID --wait; then make a new token",
		},
		{
			"token-kid-unknown", "token-kid", "the key of the token is not published", append(keyUnknown(), Answer{KubeAPIServer, invalidBearer}), "",
			"make a new token, since this one may be of an earlier key; if the new one fails too, publish the key that the cluster signs with: keypost key add ISSUER --kubeconfig FILE",
		},
		{
			"token-signature-wrong", "token-signature", "another key than the named one signed the token", signatureWrong(), "",
			"make a new token; if it fails too, publish the key that signs (keypost key add ISSUER --kubeconfig FILE) under a kid of its own",
		},
	}
}

func timeCauses() []Cause {
	return []Cause{
		{
			"token-times-missing", "token-time", "the token lacks exp or iat",
			[]Answer{{AWS, "InvalidIdentityToken: Missing a required claim: exp"}, {GCP, "invalid_grant"}, {Entra, "AADSTS700024"}, {KubeAPIServer, "oidc: token is expired"}}, "",
			"the old tokens in Secrets have none: " + MakeToken,
		},
		{
			"token-expired", "token-time", "the token has expired", append(expired(), unauthorized()...), "",
			"make a new token, and let the program read its token file again before each use: kubelet renews the file",
		},
		{
			"token-expired-just-now", "token-time", "the token has expired, which AWS accepts for 5 minutes", expired()[1:], "AWS STS accepts a token for 5 minutes more, others do not",
			"make a new token",
		},
		{
			"token-not-yet", "token-time", "the token is not valid yet",
			[]Answer{{AWS, "InvalidIdentityToken"}, {GCP, "invalid_grant"}, {Entra, "AADSTS700024"}, {Vault, "invalid not before (nbf) claim"}, {KubeAPIServer, "oidc: current time"}}, "",
			"set the clocks of the kube-apiserver and of this machine (chronyc tracking)",
		},
		{
			"token-future", "token-time", "the token was issued in the future",
			[]Answer{{GCP, "invalid_grant"}, {Entra, "AADSTS700024"}, {Vault, "invalid issued at (iat) claim"}}, "",
			"set the clocks of the kube-apiserver and of this machine (chronyc tracking)",
		},
		{
			"token-lifetime", "token-time", "the token lives longer than 24 hours",
			[]Answer{{GCP, "invalid_grant: ID Token issued at"}},
			"whoever steals it may use it for that long, and its key cannot be removed before",
			"ask for at most 24 hours (expirationSeconds of the projected volume, kubectl create token SERVICEACCOUNT --duration 1h), and take the cloud's audience out of --api-audiences: kube-apiserver extends tokens of its own audiences to a year",
		},
	}
}

func claimCauses() []Cause {
	return []Cause{
		{
			"token-aud-missing", "token-claims", "the token has no audience",
			[]Answer{{AWS, "InvalidIdentityToken: Missing a required claim: aud"}, {GCP, "invalid_grant: The audience in ID Token"}, {Entra, "AADSTS700212"}, {Vault, "invalid audience (aud) claim"}, unauthorized()[0]}, "",
			"ask for one with " + MakeToken,
		},
		{
			"token-aud-cluster", "token-claims", "the token is for the cluster itself", otherAudience(),
			"a cloud that accepts it lets every pod in with the token that it has anyway",
			"ask for the cloud's audience: " + MakeToken + ", or audience in the projected volume",
		},
		{
			"token-aud-unusual", "token-claims", "the token's audience is none that the declared relying parties ask for by default", otherAudience(), "",
			"see that the cloud has this audience (AWS as a client ID of the provider, GCP among the allowed audiences of the provider, Entra in the federated credential), or ask for another with " + MakeToken,
		},
		{
			"token-aud-many", "token-claims", "the token has several audiences",
			[]Answer{{AWS, "InvalidIdentityToken: Incorrect token audience"}}, "which one AWS STS compares is not documented",
			"ask for one audience per token: " + MakeToken,
		},
		{
			"token-sub-missing", "token-claims", "the token names no subject",
			[]Answer{{AWS, "InvalidIdentityToken: Missing a required claim: sub"}, {GCP, "invalid_grant"}, {Entra, "AADSTS700213"}}, "",
			"make one with " + MakeToken,
		},
		{
			"token-sub-gcp", "token-claims", "the token's subject is too long for GCP",
			[]Answer{{GCP, "invalid_grant: The size of mapped attribute exceeds the 127 bytes limit."}}, "",
			"shorten the namespace or the service account's name, or map google.subject from a part of the subject (gcloud iam workload-identity-pools providers update-oidc PROVIDER --attribute-mapping MAPPING)",
		},
		{
			"token-sub-long", "token-claims", "the token's subject is longer than AWS returns",
			nil, "AWS STS returns at most 255 characters of it",
			"shorten the namespace or the service account's name",
		},
	}
}

func malformed() []Answer {
	return []Answer{
		{AWS, awsNoJWT}, {GCP, "invalid_grant"},
		{Vault, "oidc: malformed jwt"},
	}
}

func otherIssuer() []Answer {
	return []Answer{
		{AWS, "InvalidIdentityToken: No OpenIDConnect provider found in your account for"},
		{GCP, "invalid_grant: The issuer in ID Token"}, {Entra, "AADSTS700211"},
		{Vault, "invalid issuer (iss) claim"}, {KubeAPIServer, "oidc: id token issued by a different provider"}, {KubeAPIServer, invalidBearer},
	}
}

func keyUnknown() []Answer {
	return []Answer{
		{AWS, awsNoKey}, {GCP, "invalid_grant"}, {Entra, "AADSTS7000272"},
		{Vault, "failed to verify id token signature"}, {KubeAPIServer, "failed to verify id token signature"},
	}
}

// signatureWrong is what they answer to a signature that does not verify. AWS does not document which of the two it is.
func signatureWrong() []Answer {
	return []Answer{
		{AWS, awsNoJWT}, {AWS, awsNoKey}, {GCP, "invalid_grant"}, {Entra, "AADSTS700027"},
		{Vault, "failed to verify id token signature"}, {KubeAPIServer, "failed to verify id token signature"},
	}
}

func expired() []Answer {
	return []Answer{
		{AWS, "ExpiredTokenException"}, {GCP, "invalid_grant: ID Token issued at"}, {Entra, "AADSTS700024"},
		{Vault, "token is expired"}, {KubeAPIServer, "oidc: token is expired"}, {KubeAPIServer, "service account token has expired"},
	}
}

func otherAudience() []Answer {
	return []Answer{
		{AWS, "InvalidIdentityToken: Incorrect token audience"}, {GCP, "invalid_grant: The audience in ID Token"}, {Entra, "AADSTS700212"},
		{Vault, "invalid audience (aud) claim"}, {KubeAPIServer, "oidc: expected audience"},
	}
}

// unauthorized is all that kube-apiserver tells a client, and what kubectl and client-go make of it; its log has the reason.
//
// Sources: k8s.io/kubectl pkg/cmd/util/helpers.go, k8s.io/apimachinery pkg/api/errors/errors.go.
func unauthorized() []Answer {
	return []Answer{{KubeAPIServer, "Unauthorized"}, {KubeAPIServer, "You must be logged in to the server"}, {KubeAPIServer, "the server has asked for the client to provide credentials"}}
}

// unknownBearer is what kube-apiserver's log has, and nothing else, of a token whose issuer or key it does not know; before the
// reasons that it knows it puts the same words.
//
// Source: k8s.io/apiserver pkg/authentication/request/bearertoken/bearertoken.go, k8s.io/kubernetes pkg/serviceaccount/jwt.go.
func unknownBearer() []Answer {
	return append([]Answer{{KubeAPIServer, invalidBearer}}, unauthorized()...)
}
