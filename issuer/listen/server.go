package listen

import (
	"log"
	"net/http"
)

// newServer returns a server with every bound set. l has its defaults filled in.
func newServer(h http.Handler, l limits, errors *errorLog) *http.Server {
	srv := &http.Server{
		Handler:                      front(h),
		ConnState:                    noteState,
		ReadTimeout:                  l.read,
		WriteTimeout:                 l.write,
		IdleTimeout:                  l.idle,
		MaxHeaderBytes:               l.header,
		ErrorLog:                     log.New(errors, "", 0),
		DisableGeneralOptionsHandler: true, // "OPTIONS *" is the handler's to refuse
		Protocols:                    new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true)
	return srv
}

// front wraps the handler of all requests.
// Request smuggling: a proxy in front may see the end of a body elsewhere
// than net/http does; what follows the body would then be answered as if it
// were another client's request (RFC 9112, section 11.2). Nothing that is
// served here needs a body.
func front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
