package enroll

import (
	"regexp"

	"github.com/keypost/keypost/issuer"
)

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
