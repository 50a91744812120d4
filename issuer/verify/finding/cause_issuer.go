package finding

import "slices"

// What AWS STS answers to AssumeRoleWithWebIdentity. It does not say more than this, whatever the cause.
//
// Source: https://repost.aws/knowledge-center/iam-sts-invalididentitytoken
const (
	awsNoKey      = `InvalidIdentityToken: Couldn't retrieve verification key from your identity provider`
	awsThumbprint = `InvalidIdentityToken: OpenIDConnect provider's HTTPS certificate doesn't match configured thumbprint`
	awsNoJWT      = `InvalidIdentityToken: The ID Token provided is not a valid JWT`
)

// What IAM answers when a provider is made whose discovery document it cannot get, or does not take: the code, and the message, which
// the console prints alone.
//
// Sources: https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateOpenIDConnectProvider.html (the code),
// https://github.com/hashicorp/vault/issues/7533 (a member is missing) and https://github.com/OctopusDeploy/Issues/issues/8759 (jwks_uri
// is on another host) with the message.
const (
	iamNoDocument    = `OpenIdIdpCommunicationError`
	iamCheckDocument = `Please check .well-known/openid-configuration of provider`
)

// unreadable is what relying parties answer when they cannot get or understand a document.
func unreadable() []Answer {
	return []Answer{
		{AWS, awsNoKey}, {AWS, iamNoDocument}, {AWS, iamCheckDocument},
		{GCP, "invalid_grant: Error connecting to the given credential's issuer."},
		{Entra, "AADSTS90061"}, {Entra, "AADSTS50166"}, {Entra, "AADSTS501661"},
		{Vault, "error checking oidc discovery URL"}, {KubeAPIServer, "oidc: authenticator not initialized"},
	}
}

// noJWKS is what relying parties answer when the discovery document is sound and the JWKS is not to be had.
func noJWKS() []Answer {
	return append(slices.DeleteFunc(unreadable(), func(a Answer) bool {
		return a.Party == Vault || a.Party == KubeAPIServer || a.Text == iamNoDocument || a.Text == iamCheckDocument
	}),
		Answer{Vault, "fetching keys"}, Answer{KubeAPIServer, "failed to verify signature: fetching keys"})
}

// untrusted is what they answer when the certificate does not convince them. AWS then goes by the thumbprints, of which one may
// match, and does not document what it says of a certificate that would be good for another time or host.
func untrusted() []Answer { return append([]Answer{{AWS, awsThumbprint}}, unreadable()...) }

// vaultMismatch is what Vault answers, by its version, to a discovery document of another issuer than the one that it is given.
func vaultMismatch() []Answer {
	return []Answer{{Vault, "oidc: issuer did not match the issuer returned by provider"}, {Vault, "oidc: issuer URL provided to client"}}
}

// otherURL is what they answer where the issuer URL is written in two ways. Vault reads the discovery document before any token.
func otherURL() []Answer {
	return append(slices.DeleteFunc(otherIssuer(), func(a Answer) bool { return a.Party == Vault }), vaultMismatch()...)
}

func aws(text string) []Answer { return []Answer{{AWS, text}} }

// issuerCauses are what can be wrong with what an issuer serves, and with the way there.
func issuerCauses() []Cause {
	return slices.Concat(reachCauses(), tlsCauses(), discoveryCauses(), jwksCauses(), keyCauses(), storedCauses(), uploadCauses(), servingCauses())
}

func reachCauses() []Cause {
	const elsewhere = "issue tokens under another URL (kube-apiserver --service-account-issuer)"
	return []Cause{
		{"url-slash", "url", "the issuer URL ends in a slash", otherURL(), "AWS, Entra and the programs in between disagree on whether it counts", "leave the slash out everywhere: " + elsewhere},
		{"url-case", "url", "the issuer URL has capital letters in its host", otherURL(), "relying parties compare byte for byte", "write the host in lower case everywhere: " + elsewhere},
		{"url-port", "url", "the issuer URL has a port", aws("InvalidInput"), "IAM takes none", "serve on 443 and " + elsewhere + "; for a development issuer say --dev"},
		{"url-form", "url", "the issuer URL is one that some cloud refuses", aws("InvalidInput"), "", elsewhere},
		{"dns-unanswered", "reach", "this machine's resolver does not answer", nil, "it says nothing about the issuer", "repair the resolver (/etc/resolv.conf), or look from another machine"},
		{"dns-none", "reach", "the host has no DNS record", unreadable(), "", "publish an A record for the host, in the public DNS"},
		{"dns-hidden", "addresses", "the host leads to a private address here", unreadable(), "with split-horizon DNS nothing here says what clouds see",
			"look again from outside; an issuer that is meant to be private says so in its policy: keypost issuer set NAME --private"},
		{"address-unroutable", "addresses", "this machine has no route to an address", nil, "relying parties may be sent there and get another answer", "look again from a machine that has a route"},
		{"proxy-used", "proxy", "the look went through a proxy", nil, "it shows what the proxy is answered, and opens no gate", "look again from a machine that reaches the issuer directly"},
		{"address-too-many", "addresses", "the host has more addresses than are asked", nil, "relying parties may be sent there and get another answer", "give the host fewer addresses"},
		{"connection-refused", "reach", "nothing accepts connections", unreadable(), "", "start keypostd there, or take the address out of the DNS record"},
		{"host-unreachable", "reach", "the network says that no way leads to an address", unreadable(), "", "repair the route to it (ip route get ADDRESS) and let port 443 through, or take the address out of the DNS record"},
		{"connection-dropped", "reach", "connections go unanswered", unreadable(), "relying parties give up after 5 to 30 seconds", "let port 443 through the firewall from everywhere"},
		{"clock-off", "clock", "this machine's clock and the server's differ by more than a minute", nil,
			"tokens of such a machine count as expired or as not valid yet, and gated steps refuse", "set both clocks (chronyc makestep)"},
		{"server-silent", "reach", "connections are accepted and not answered", unreadable(), "AWS gives up after 5 seconds", "restart what listens there, and see its log"},
	}
}

func tlsCauses() []Cause {
	const chain = "send the leaf first and after each certificate the one that signed it, nothing else (keypostd reads it from tls.files[].cert)"
	return []Cause{
		{"tls-broken", "reach", "the TLS handshake fails", unreadable(), "", "serve TLS 1.2 and 1.3 there, and see the log of what listens"},
		{"tls-expired", "tls-chain", "the certificate has expired", untrusted(), "", "renew the certificate (and check this machine's clock)"},
		{"tls-not-yet", "tls-chain", "the certificate is not valid yet", untrusted(), "", "check the clocks of this machine and of the one that issues certificates, or wait"},
		{"tls-name", "tls-chain", "the certificate is for another host", untrusted(), "", "use a certificate for this host name"},
		{"tls-incomplete", "tls-chain", "the intermediate certificate is missing", untrusted(), "",
			"the server sends only its own certificate: add the intermediate ones, or give a private CA with --ca-file"},
		{"tls-untrusted", "tls-chain", "the certificate is of an unknown CA", untrusted(), "", "use a certificate of a public CA and send the intermediate ones with it, or give a private CA with --ca-file"},
		{"tls-doubled", "tls-chain", "a certificate is sent twice", aws(awsNoKey), "browsers and Go do not mind", chain},
		{"tls-order", "tls-chain", "the certificates are out of order", aws(awsNoKey), "browsers and Go do not mind", chain},
		{"tls-13-only", "tls-versions", "TLS 1.2 is not accepted", aws(awsThumbprint), "", "offer TLS 1.2 as well (in CloudFront: the policy TLSv1.2_2021)"},
		{"tls-12-only", "tls-versions", "TLS 1.3 is not accepted", nil, "no cloud asks for it yet", "offer TLS 1.3 as well"},
		{"tls-expires-soon", "tls-expiry", "the certificate expires soon", nil, "once it has expired every token exchange fails", "renew the certificate, and see why what should renew it has not"},
	}
}

// fetchCauses are what can be wrong with one document before anybody reads it.
func fetchCauses(prefix, check, name string, answers []Answer) []Cause {
	return []Cause{
		{prefix + "-silent", check, name + " does not come within 5 seconds", answers, "AWS gives up after 5 seconds", "restart what serves it, and see what it waits for in its log"},
		{prefix + "-broken-off", check, name + " breaks off", answers, "", "see the log of what serves it; a document is at most 1 MiB"},
		{prefix + "-redirect", check, name + " is a redirect", answers, "", "serve it there directly with status 200: relying parties need not follow a redirect"},
		{prefix + "-404-cached", check, "a cache holds that " + name + " is not there", answers, "", "purge the 404 from the CDN (aws cloudfront create-invalidation --distribution-id ID --paths PATH), and look again"},
		{prefix + "-not-found", check, name + " is not there", answers, "", "serve it with status 200, and purge what cached the 404: see what keypostd serves with keypost issuer list --admin URL; if it serves this issuer, what stands before it answers itself, or passes on another host or path: in nginx it is to have " + NginxBlock},
		{prefix + "-forbidden", check, name + " is not for everybody", answers, "relying parties bring no credentials",
			"let everybody read it: in nginx with " + NginxBlock + "; kube-apiserver's own with kubectl create clusterrolebinding issuer-discovery --clusterrole=system:service-account-issuer-discovery --group=system:unauthenticated"},
		{prefix + "-status", check, name + " comes with another status than 200", answers, "",
			"serve it with status 200; see the log of what answers. A proxy before keypostd asks it with https:// where its tls.mode is files or acme, with http:// where it is off, and asks nobody for a client certificate"},
		{prefix + "-form", check, name + " cannot be read, or not by everybody alike", answers, "", "serve what an export has, unchanged (keypost export DIR)"},
	}
}

// headerCauses are what can be wrong with how one document may be cached.
//
// Source: GitLab merge request 138405, which quotes AWS support.
func headerCauses(prefix, check, name string) []Cause {
	const load = "under load it has no copy to go on with"
	const repair = "serve it as keypostd does, with Cache-Control: public, max-age=300; a CDN must not rewrite the header"
	return []Cause{
		{prefix + "-type", check, name + " has another type than JSON", nil, "some readers refuse it", "serve it as application/json"},
		{prefix + "-no-store", check, name + " may not be cached", aws(awsNoKey), load, repair},
		{prefix + "-max-age-0", check, name + " may be cached for no time at all", aws(awsNoKey), load, repair},
		{prefix + "-no-max-age", check, name + " does not say how long it may be cached", nil, "each cache decides for itself", repair},
		{prefix + "-max-age-short", check, name + " may be cached for less than a minute", aws(awsNoKey), load, repair},
		{prefix + "-max-age-long", check, name + " may be cached for more than an hour", nil, "after a revocation relying parties may trust the key for that long", "lower it: keypost issuer set NAME --max-age 5m"},
		{prefix + "-no-etag", check, name + " has no ETag", nil, "without it caches fetch the whole document again and again", "let the ETag of keypostd through, or make the web server send one"},
	}
}

// NginxBlock lets everybody ask keypostd for the issuer below /PATH/, as they ask. With ^~ no block for a pattern, such as one for names
// with a dot, is asked first; and an allow of its own ends those of the server.
//
// Source: https://nginx.org/en/docs/http/ngx_http_core_module.html#location
const NginxBlock = "location ^~ /PATH/ { proxy_pass https://KEYPOSTD; proxy_set_header Host $host; proxy_ssl_server_name on; proxy_ssl_name $host; auth_basic off; allow all; }" +
	" in place of any other block for /PATH/ or a path below it, without auth_request, rewrite or if in the server around it (http://KEYPOSTD where keypostd has tls.mode: off)"

// proxyCauses are what can be wrong with what stands before keypostd, which goes by host and path.
func proxyCauses() []Cause {
	return []Cause{
		{"proxy-path", "discovery", "a proxy takes the issuer's path off", unreadable(), "", "have it pass the path on as it came: in nginx with " + NginxBlock},
		{"proxy-host", "discovery", "a proxy asks keypostd for another host or path", unreadable(), "",
			"have it pass both on as they came: in nginx with " + NginxBlock + "; if it does, keypostd does not serve this issuer: keypost issuer list --admin URL"},
	}
}

func discoveryCauses() []Cause {
	const members = "serve the discovery document of an export, unchanged (keypost export DIR)"
	unfit := []Answer{{AWS, awsNoKey}, {AWS, iamNoDocument}, {AWS, iamCheckDocument}}
	mismatch := append([]Answer{
		{AWS, awsNoKey}, {AWS, iamNoDocument}, {AWS, iamCheckDocument}, {GCP, "`issuer` claim in OIDC discovery document does not match the issuer specified in the request"}, {Entra, "AADSTS90061"},
		{KubeAPIServer, "oidc: issuer did not match the issuer returned by provider"},
	}, vaultMismatch()...)
	return slices.Concat(proxyCauses(), fetchCauses("discovery", "discovery", "the discovery document", unreadable()), []Cause{
		{"issuer-slash", "issuer", "the discovery document's issuer and the issuer URL differ by a slash", mismatch, "", "leave the slash out in both: host, path, case and a trailing slash must be equal"},
		{"issuer-case", "issuer", "the discovery document's issuer and the issuer URL differ in letter case", mismatch, "", "write both alike: host, path, case and a trailing slash must be equal"},
		{"issuer-other", "issuer", "the discovery document is of another issuer", mismatch, "", "serve this issuer's own document at this URL: host, path, case and a trailing slash must be equal"},
		{"jwks-uri-form", "jwks-uri", "jwks_uri is missing or no https URL", append(noJWKS(), Answer{AWS, iamNoDocument}, Answer{AWS, iamCheckDocument}), "", members},
		{"jwks-uri-host", "jwks-uri", "jwks_uri is on another host", aws(iamCheckDocument), "the IAM console refuses it, and a thumbprint is of that host's certificate", "keep both documents on one host: " + members},
		{"jwks-uri-beside", "jwks-uri", "jwks_uri is not below the issuer URL", nil, "who may serve one path can speak for another", "keep the JWKS below the issuer: " + members},
		{"response-types-missing", "discovery-members", "response_types_supported lacks id_token", unfit, "", members},
		{"subject-types-missing", "discovery-members", "subject_types_supported lacks public", append(slices.Clone(unfit), Answer{Entra, "AADSTS90061"}), "", members},
		{"algorithms-missing", "discovery-members", "the discovery document names no algorithm that AWS accepts", unfit, "", members},
		{"algorithm-unnamed", "discovery-members", "the discovery document does not name a key's algorithm", nil, "programs that go by it refuse its tokens, as those with go-oidc do; Vault and kube-apiserver have lists of their own", members},
		{"claims-missing", "discovery-members", "claims_supported lacks what AWS documents", nil, "AWS documents it as required; it works without at present", members},
	}, headerCauses("discovery", "discovery-headers", "the discovery document"))
}

func jwksCauses() []Cause {
	alias := fetchCauses("alias", "jwks-alias", "/openid/v1/jwks", nil) // clouds go by jwks_uri
	for i := range alias {
		alias[i].Effect = "newer OpenShift sends relying parties inside the cluster there"
		if alias[i].Code == "alias-not-found" {
			alias[i].Repair = "serve the JWKS there too, as keypostd does and an export has it (keypost export DIR)"
		}
	}
	return slices.Concat(
		fetchCauses("jwks", "jwks", "the JWKS", noJWKS()),
		[]Cause{{"jwks-empty", "jwks-keys", "the JWKS has no key", keyUnknown(), "", "publish the cluster's key: keypost key add ISSUER --kubeconfig FILE"}},
		headerCauses("jwks", "jwks-headers", "the JWKS"),
		alias,
	)
}

func keyCauses() []Cause {
	damaged := []Answer{
		{AWS, awsNoKey}, {GCP, "invalid_grant: Error connecting to the given credential's issuer."}, {Entra, "AADSTS7000272"},
		{Vault, "oidc: failed to decode keys"}, {KubeAPIServer, "oidc: failed to decode keys"},
	}
	const unchanged = "serve the JWKS of an export, unchanged (keypost export DIR)"
	return []Cause{
		{"key-private", "jwks-keys", "the signing key is public", nil, "whoever read it can sign as this cluster", "take it out at once and give the cluster a new key: keypost key revoke ISSUER KID --why leaked --replacement FILE"},
		{"kid-missing", "jwks-keys", "a key has no kid", keyUnknown(), "a key is picked by its kid alone", unchanged},
		{"kid-doubled", "jwks-keys", "two keys have one kid", aws(awsNoKey), "a key is picked by its kid alone; go-oidc (Vault, kube-apiserver) tries each of them", unchanged},
		{"key-weak", "jwks-keys", "an RSA key is too short", []Answer{{AWS, awsNoKey}, {GCP, "invalid_grant"}}, "its private half can be computed", "give the cluster a key of 2048 bits or more: keypost key generate --out DIR"},
		{"key-ec-entra", "jwks-keys", "an EC key is published for Entra", []Answer{{Entra, "AADSTS700027"}}, "Entra takes RS256 only", "give the cluster an RSA key: keypost key generate --type rsa3072 --out DIR, then keypost key add ISSUER --public-key-file DIR/sa.pub; take the other one out once it signs no more (keypost key remove ISSUER KID)"},
		{"key-alg-gcp", "jwks-keys", "a key is published that GCP does not take", []Answer{{GCP, "invalid_grant"}}, "GCP takes RS256 and ES256 only", "give the cluster an RSA or P-256 key: keypost key generate --type rsa3072 --out DIR, then keypost key add ISSUER --public-key-file DIR/sa.pub; take the other one out once it signs no more (keypost key remove ISSUER KID)"},
		{"key-type", "jwks-keys", "a key is of a type that clouds do not take", []Answer{{AWS, awsNoKey}, {GCP, "invalid_grant"}, {Entra, "AADSTS7000272"}}, "its tokens are refused; they take RSA and ECDSA on P-256, P-384 and P-521", "give the cluster such a key: keypost key generate --out DIR"},
		{"key-form", "jwks-keys", "a key cannot be read", damaged, "some relying parties then read no key of the JWKS at all", unchanged},
		{"keys-too-many", "jwks-keys", "there are more keys of one type than AWS reads", aws("InvalidIdentityToken"), "", "remove keys that sign no more: keypost key remove ISSUER KID"},
		{"key-certificate", "jwks-keys", "a key carries a certificate beside it", nil, "some relying parties take the key from there, so it may be another one", "find out what changed the document on its way: keypostd never publishes it"},
		{"key-member", "jwks-keys", "a key has members that not everybody reads", []Answer{{GCP, "invalid_grant"}}, "GCP refuses an upload with other members than those of the public key", unchanged},
		{"keys-too-many-gcp", "jwks-keys", "there are more keys than GCP takes as an upload", []Answer{{GCP, "invalid_grant: Error connecting to the given credential's issuer."}}, "a pool that reads the public URL does not mind", "remove keys that sign no more: keypost key remove ISSUER KID"},
		{"kid-form", "jwks-keys", "a kid is not the one that Kubernetes computes", keyUnknown(), "kube-apiserver names its key by the SHA-256 of the public key, so the cluster's own tokens name another kid; only an external signer may bring one",
			"publish the key as the cluster names it (keypost key add ISSUER --kubeconfig FILE), and take this one out: keypost key retire ISSUER KID --why REASON, and after the time that it says keypost key remove ISSUER KID"},
		{"key-use-missing", "jwks-keys", "a key lacks use or alg", nil, `some relying parties skip keys without "use":"sig" and "alg"`, unchanged},
	}
}

func storedCauses() []Cause {
	const findChange = "find out what changed the document on its way, and compare it with an export (keypost export DIR)"
	const behind = "see that keypostd serves the stored version (keypost issuer list --admin URL) and that its mirror is up to date; a shared cache that shows itself in no header is declared with keypost issuer set NAME --edge-hold 24h"
	const accepted = "tokens signed with it are still accepted"
	const refused = "tokens signed with it are refused"
	const stranger = "tokens signed with it are accepted wherever this issuer is trusted: somebody else answers for your issuer, or publishes a key of theirs"
	const outOfReach = "first take what serves it out of reach (DNS record, CDN, host) and replace the TLS key; until that is done deny this issuer in the trust policies of the clouds." +
		" Make sure also that --store names the store that is published"
	return []Cause{
		{"key-rogue", "stored-keys", "a key is published that the store never had", nil, stranger,
			"ask keypostd itself first (keypost issuer list --admin URL): older_generation means that the store was put back to an older version, by a backup or a revert in Git, and that the key may be your own, of a version in between; else " + outOfReach},
		{"key-swapped", "stored-keys", "another key is published under the kid of a stored one", signatureWrong(), stranger, outOfReach},
		{"key-returned", "stored-keys", "a key that is gone is published under another kid", nil, stranger, outOfReach},
		{"keys-unread", "stored-keys", "what is published cannot be compared", nil, stranger, outOfReach},
		{"jwks-uri-rogue", "jwks-uri", "the discovery document names a JWKS that is not keypostd's", nil, stranger, outOfReach},
		{"replica-stale", "same-keys", "one of several replicas behind an address answers with other keys", keyUnknown(), "every so many calls fail",
			"ask each replica by itself (keypost verify NAME --connect HOST:PORT), and restart the stale one; name them all in the policy: keypost issuer set NAME --origin HOST:PORT"},
		{"alias-differs", "jwks-alias", "/openid/v1/jwks and jwks_uri have other keys", nil, "relying parties that read one of the two refuse tokens that the other knows",
			"purge what caches them: a cache in between may hold an older copy of one"},
		{"cache-stale", "shared-cache", "a cache hands out a document for longer than it may", keyUnknown(), "a new key is not seen and a revoked one stays trusted",
			"let the CDN obey Cache-Control (no minimum TTL, no TTL of its own) and purge it; or say for how long at most it holds copies: keypost issuer set NAME --edge-hold 24h"},
		{"kid-changed", "stored-keys", "a stored key is published under another kid", keyUnknown(), "a relying party picks the key by the kid that a token names, and the cluster's tokens name another", findChange},
		{"alg-changed", "stored-keys", "a stored key is published for another algorithm", signatureWrong(), "relying parties refuse its tokens", findChange},
		{"key-still-there", "stored-keys", "a key that is gone is published longer than any cache may hold it", nil, accepted,
			"purge the CDN, look for a host that serves an older document, and see that keypostd and its mirror are up to date (keypost issuer list --admin URL)"},
		{"key-not-withdrawn", "stored-keys", "a key that is gone is published, and no cache shows itself", nil, accepted, behind},
		{"key-cached", "stored-keys", "a key that is gone may still be cached", nil, "", "purge the CDN to be sooner, see what keypostd serves (keypost issuer list --admin URL), and look again after that time"},
		{"key-missing", "stored-keys", "a stored key is not published, longer than any cache may hold an older copy", keyUnknown(), refused,
			"keypostd may reject the key set (see its log and keypost issuer list --admin URL), the mirror may be behind, or somebody else answers with an older document"},
		{"key-not-published", "stored-keys", "a stored key is not published, and no cache shows itself", keyUnknown(), refused, behind},
		{"key-not-yet", "stored-keys", "a stored key is not published everywhere yet", keyUnknown(), refused + " until then", "look again after that time"},
		{"active-revoked", "active-key", "the key that signed was revoked, and no key is active", keyUnknown(), "the cluster may sign with no key, and what it signs is refused",
			"let the next key sign, and have the cluster sign with it: keypost key promote ISSUER KID --force --why REASON --confirm-kid KID"},
		{"active-none", "active-key", "no key is active", nil, "it is so before a cluster signs and once it has ended; tokens of retired keys are accepted until they expire",
			"once the cluster is to sign with the next key: keypost key promote ISSUER KID"},
		{"addresses-differ", "same-keys", "the addresses publish different keys", keyUnknown(), "", "a cache may hold an older copy, or somebody else answers at one of them: compare with the store (keypost verify NAME --store STORE)"},
	}
}

// uploadCauses are about the JWKS that was uploaded to a relying party, which goes by that and fetches nothing.
func uploadCauses() []Cause {
	const sync = "upload the published keys and read them back: keypost gcp sync-keys ISSUER; where that is refused, it says what comes first"
	return []Cause{
		{"upload-behind", "uploads", "a relying party holds an upload that lacks a published key, or has another one", []Answer{{GCP, "invalid_grant"}}, "tokens signed with a key that it lacks are refused there, and gates stay closed; tokens of a key that is not published, as one that was revoked, are accepted there", sync},
		{"upload-unread", "uploads", "nothing was read back of an upload that the policy names, or not the last time", nil, "nobody knows which keys the relying party goes by, and gates stay closed", sync},
		{"uploads-unknown", "uploads", "what was read back of uploads is not known here", nil, "", "name the place where readings are recorded: keypost verify ISSUER --observations URL; a document there that is damaged is to be mended or removed"},
	}
}

func servingCauses() []Cause {
	return []Cause{
		{"head-failed", "head", "HEAD of the issuer URL gets no answer", nil, "ccoctl cannot compute the thumbprint of the issuer", "let HEAD requests through to keypostd"},
		{"head-trouble", "head", "HEAD of the issuer URL finds trouble", nil, "ccoctl is content with any answer; others are not", "see the log of what answers"},
		{"cdn-refused", "origin", "keypostd refuses its own CDN", unreadable(), "a CDN hands out copies for as long as it has them, and then this",
			"have the CDN show its origin the header of listen.shield with the secret that is in one of keypostd's secretFiles, or the client certificate where there is clientCAFile. To change the secret," +
				" give keypostd the new file beside the old one and restart it before the CDN gets it; keypost_shield_refused_total counts what is refused, by what it lacks"},
		{"origin-silent", "origin", "an origin hangs behind a cache that still has a good copy", unreadable(), "relying parties are refused once the copy has run out",
			"restart what listens there, and see its log; or name the origins that are left: keypost issuer set NAME --origin HOST:PORT"},
		{"origin-unreachable", "origin", "an origin cannot be reached from here", unreadable(), "either it lets only its cache in, and a stale replica stays hidden; or it is down, and relying parties are refused once every other origin and every copy is gone",
			"look from where the cache looks: keypost verify NAME --connect HOST:PORT; start keypostd there if that fails too. A balancer that accepts a connection and closes it has no keypostd left"},
		{"origin-certificate", "origin", "an origin has no certificate for the issuer's host, or for its own name in the policy", nil, "its cache may ask it under another name; looks of keypost issuer observe do not, so gates stay closed",
			"name it in the policy as its CDN does (keypost issuer set NAME --origin HOST:PORT), give it a certificate for that name, or its private CA with --ca-file"},
		{"origin-alone", "origin", "the server that was asked has a certificate for an origin's name alone", nil, "relying parties that are sent to it themselves refuse its certificate; its CDN does not",
			"give it a certificate for the issuer's host; or, if only its CDN asks it, say which origin it is: keypost verify NAME --connect HOST:PORT --origin HOST"},
		{"origin-shielded", "origin", "an origin answers its cache only", nil, "a stale replica behind the cache stays hidden", "show it what its CDN shows: keypost verify NAME --origin HOST --origin-header-file FILE, or --origin-cert and --origin-key"},
		{"origin-refused", "origin", "an origin refuses what it is shown", nil, "a stale replica behind the cache stays hidden; its CDN is refused too if it shows the same",
			"give --origin-header-file a secret that is in one of the origin's secretFiles (listen.shield), as its CDN shows it, and where it has a clientCAFile a certificate of that CA: --origin-cert and --origin-key"},
		{"origin-cert-refused", "origin", "an origin refuses the client certificate that it is shown", nil, "a stale replica behind the cache stays hidden; its CDN is refused too if it shows the same",
			"show one that has not expired, is for client authentication, and is signed by a CA in the origin's clientCAFile (listen.shield): --origin-cert and --origin-key; renew that of its CDN too if it is the same"},
		{"replica-broken", "same-keys", "one of several replicas behind an address answers with an error", unreadable(), "every so many calls fail",
			"ask each replica by itself (keypost verify NAME --connect HOST:PORT), and restart the broken one"},
		{"etag-stuck", "etag", "one ETag stands for two contents", keyUnknown(), "a cache that asks whether its copy still holds is told yes, and keeps the old one", "let the ETag of keypostd through: it is made from the content"},
		{"etag-unstable", "etag", "one content has several ETags", nil, "caches fetch the whole document again and again", "let the ETag of keypostd through: replicas with one generation answer alike"},
		{"cache-alone", "shared-cache", "a cache goes on without its origin", nil, "relying parties are refused once stale-if-error has run out", "see that the origins answer the cache: keypost verify NAME --connect HOST:PORT"},
		{"cache-undeclared", "shared-cache", "nobody says how long the shared cache holds copies", nil, "keypost key promote refuses until the policy says it", "say how long it may hold a copy: keypost issuer set NAME --edge-hold 24h"},
		{"slow", "speed", "an answer takes longer than a second", aws(awsNoKey), "AWS STS gives up after 5s", "put a cache that serves stale copies before the origin, or find what it waits for"},
	}
}

// comparisonCauses stand last: that there is nothing to compare with follows from what stands before, or from how
// keypost was called.
func comparisonCauses() []Cause {
	const stand = "somebody who answers in your place would pass: compare with keypost verify NAME --store STORE"
	return []Cause{
		{"store-withdrawn", "stored-keys", "the key set was withdrawn", nil, "the comparison could not be made", "look for the key set that is in use: keypost issuer list"},
		{"store-other-url", "stored-keys", "the key set has other issuer URLs", nil, "the comparison could not be made", "look at its URLs: keypost issuer show NAME"},
		{"store-unread", "stored-keys", "the store cannot be read", nil, "the comparison could not be made", "repair the store, and look again"},
		{"not-compared", "stored-keys", "no JWKS could be read, so nothing was compared", nil, "", "repair what fails above, and look again"},
		{"store-unknown", "stored-keys", "the store does not have this issuer", nil, "", stand},
		{"store-none", "stored-keys", "no store was given", nil, "", stand},
	}
}
