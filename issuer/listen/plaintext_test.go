package listen

import (
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keypost/keypost/test/authority"
)

// leads is a CA that leads to another host: it redirects whatever is asked at one path, or names a URL there in place of its own.
type leads struct {
	ca       *playedCA
	redirect string // a path
	code     int
	name     string // a path that is another host's in what the CA answers
	to       string
	reached  []string // requests to another host
}

func (l *leads) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != "ca.example" || req.URL.Scheme != "https" {
		l.reached = append(l.reached, req.Method+" "+req.URL.String())
		return nil, errors.New("SECRET of an internal server")
	}
	if l.redirect != "" && req.URL.Path == l.redirect {
		header := http.Header{"Location": {l.to}, "Replay-Nonce": {"nonce"}}
		return &http.Response{StatusCode: l.code, Header: header, Body: http.NoBody, Request: req}, nil
	}
	res, err := l.ca.RoundTrip(req)
	if err == nil && req.URL.Path == "/dir" {
		res.Header.Del("Replay-Nonce") // so that /nonce is asked for one
	}
	if err != nil || l.name == "" {
		return res, err
	}
	body, err := io.ReadAll(res.Body)
	own := "https://ca.example" + l.name + `"`
	res.Body = io.NopCloser(strings.NewReader(strings.ReplaceAll(string(body), own, l.to+`"`)))
	if at := res.Header.Get("Location"); at+`"` == own {
		res.Header.Set("Location", l.to)
	}
	return res, err
}

// A CA that redirects, wherever to, or that names URLs without TLS, is not followed there: anyone who is on the way could answer in its
// place, and what is asked inside a network is asked from within (RFC 8555, section 6.1). The error says where it would have led.
func TestNoOrderWithoutTLS(t *testing.T) {
	root := authority.Named(t, "root", nil)
	const followed, plain, inside = "redirects to ", "http://10.0.0.1/latest/api/token", "https://10.0.0.1/admin"
	for name, tt := range map[string]struct {
		leads leads
		want  string
	}{
		"302 of the directory":            {leads{redirect: "/dir", code: 302, to: plain}, followed + plain},
		"301 to the CA itself":            {leads{redirect: "/dir", code: 301, to: "/other"}, followed + "https://ca.example/other"},
		"307 of newAccount":               {leads{redirect: "/account", code: 307, to: plain}, followed + plain},
		"308 of newOrder":                 {leads{redirect: "/order", code: 308, to: inside}, followed + inside},
		"307 of finalize":                 {leads{redirect: "/finalize", code: 307, to: inside}, followed + inside},
		"302 of the certificate":          {leads{redirect: "/certificate", code: 302, to: inside}, followed + inside},
		"newNonce without TLS":            {leads{name: "/nonce", to: plain}, "without TLS"},
		"newAccount without TLS":          {leads{name: "/account", to: plain}, "without TLS"},
		"newOrder without TLS":            {leads{name: "/order", to: plain}, "without TLS"},
		"finalize without TLS":            {leads{name: "/finalize", to: plain}, "without TLS"},
		"the certificate without TLS":     {leads{name: "/certificate", to: plain}, "without TLS"},
		"newAccount with another scheme":  {leads{name: "/account", to: "ftp://10.0.0.1/"}, "without TLS"},
		"nothing of all that: it is sent": {leads{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.leads.ca = &playedCA{chain: []*authority.Authority{root}, times: living(90 * day)}
				a := replica(t, filepath.Join(t.TempDir(), "cache"), &tt.leads)
				err := a.order(t.Context(), a.hosts[0])
				if len(tt.leads.reached) > 0 || (err == nil) != (tt.want == "") {
					t.Errorf("asked %q, %v", tt.leads.reached, err)
				}
				if err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.leads.to) || strings.Contains(err.Error(), "SECRET")) {
					t.Errorf("%v, want %q", err, tt.want)
				}
			})
		})
	}
}
