// Package fakecloudfront stands in for two calls of CloudFront, CreateInvalidation and GetInvalidation, by the shapes of its API
// reference. It checks neither signatures nor policies, and no edge stands behind it.
package fakecloudfront

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Server is a distribution. It is an http.Handler.
type Server struct {
	Distribution string
	Looks        int            // how often an invalidation is still under way when it is looked at
	Done         func([]string) // called with the paths when an invalidation completes; may be nil
	Denied       bool           // the caller may do nothing

	mu   sync.Mutex
	made []*invalidation
}

type invalidation struct {
	reference string
	paths     []string
	looks     int
}

// Made returns the paths of each invalidation, in order.
func (s *Server) Made() (all [][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.made {
		all = append(all, i.paths)
	}
	return all
}

const version = "/2020-05-31/distribution/"

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest, ours := strings.CutPrefix(r.URL.Path, version)
	distribution, call, _ := strings.Cut(rest, "/")
	switch {
	case !ours:
		http.NotFound(w, r)
	case s.Denied || !strings.Contains(r.Header.Get("Authorization"), "/cloudfront/aws4_request"):
		refuse(w, http.StatusForbidden, "AccessDenied", "User: arn:aws:iam::123456789012:user/x is not authorized to perform: cloudfront:CreateInvalidation")
	case distribution != s.Distribution:
		refuse(w, http.StatusNotFound, "NoSuchDistribution", "The specified distribution does not exist.")
	case r.Method == http.MethodPost && call == "invalidation":
		s.create(w, r)
	case r.Method == http.MethodGet && strings.HasPrefix(call, "invalidation/I"):
		s.get(w, strings.TrimPrefix(call, "invalidation/I"))
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	var batch struct {
		CallerReference string
		Paths           struct {
			Quantity int
			Items    []string `xml:"Items>Path"`
		}
	}
	if err := xml.NewDecoder(r.Body).Decode(&batch); err != nil || batch.CallerReference == "" || batch.Paths.Quantity != len(batch.Paths.Items) || batch.Paths.Quantity == 0 {
		refuse(w, http.StatusBadRequest, "InvalidArgument", "Your request contains an invalid argument.")
		return
	}
	for _, p := range batch.Paths.Items {
		if !strings.HasPrefix(p, "/") {
			refuse(w, http.StatusBadRequest, "InvalidArgument", "Your request contains an invalid invalidation path.")
			return
		}
	}
	for n, i := range s.made {
		if i.reference == batch.CallerReference {
			s.answer(w, http.StatusCreated, n)
			return
		}
	}
	s.made = append(s.made, &invalidation{batch.CallerReference, batch.Paths.Items, s.Looks})
	s.answer(w, http.StatusCreated, len(s.made)-1)
}

func (s *Server) get(w http.ResponseWriter, id string) {
	var n int
	if _, err := fmt.Sscanf(id, "%d", &n); err != nil || n < 0 || n >= len(s.made) {
		refuse(w, http.StatusNotFound, "NoSuchInvalidation", "The specified invalidation does not exist.")
		return
	}
	if s.made[n].looks--; s.made[n].looks < 0 && s.Done != nil {
		s.Done(s.made[n].paths)
	}
	s.answer(w, http.StatusOK, n)
}

func (s *Server) answer(w http.ResponseWriter, status, n int) {
	state := "InProgress"
	if s.made[n].looks < 0 {
		state = "Completed"
	}
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0"?><Invalidation xmlns="http://cloudfront.amazonaws.com/doc/2020-05-31/"><Id>I%d</Id><Status>%s</Status><CreateTime>2026-01-01T00:00:00Z</CreateTime></Invalidation>`, n, state)
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0"?><ErrorResponse xmlns="http://cloudfront.amazonaws.com/doc/2020-05-31/"><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>r</RequestId></ErrorResponse>`, code, message)
}
