package ownlook

import (
	"net/http"
	"testing"
)

func TestIs(t *testing.T) {
	own := http.Header{}
	Claim(own)
	if !Is(own) {
		t.Error("a claimed request is not recognised")
	}
	for _, others := range []http.Header{nil, {}, {"User-Agent": {"Go-http-client/2.0"}}, {"User-Agent": {"Amazon CloudFront"}}, {"User-Agent": {"x keypost-look"}}} {
		if Is(others) {
			t.Errorf("%v is taken for one of keypost's own", others)
		}
	}
}
