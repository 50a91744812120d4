package fakeaws

import (
	"bytes"
	"context"
	"encoding/xml"
	"net"
	"net/http"
	"strconv"
	"time"
)

// The versions by which a request says which service it means.
const (
	iamVersion = "2010-05-08"
	stsVersion = "2011-06-15"
)

func namespace(version string) string {
	if version == stsVersion {
		return "https://sts.amazonaws.com/doc/" + version + "/"
	}
	return "https://iam.amazonaws.com/doc/" + version + "/"
}

// answer is the XML of a success: <ActionResponse><ActionResult>…</ActionResult><ResponseMetadata>….
func answer(op operation, action, requestID string, result any) ([]byte, error) {
	var b bytes.Buffer
	e := xml.NewEncoder(&b)
	root := xml.StartElement{Name: xml.Name{Local: action + "Response"},
		Attr: []xml.Attr{{Name: xml.Name{Local: "xmlns"}, Value: namespace(op.version)}}}
	if err := e.EncodeToken(root); err != nil {
		return nil, err
	}
	if result != nil {
		if err := e.EncodeElement(result, xml.StartElement{Name: xml.Name{Local: action + "Result"}}); err != nil {
			return nil, err
		}
	}
	metadata := struct{ RequestId string }{requestID}
	if err := e.EncodeElement(metadata, xml.StartElement{Name: xml.Name{Local: "ResponseMetadata"}}); err != nil {
		return nil, err
	}
	if err := e.EncodeToken(root.End()); err != nil {
		return nil, err
	}
	err := e.Flush()
	return b.Bytes(), err
}

// refusal is the XML of a failure.
func refusal(version, requestID string, f *failure) ([]byte, error) {
	type inner struct{ Type, Code, Message string }
	who := "Sender"
	if f.status >= http.StatusInternalServerError {
		who = "Receiver"
	}
	return xml.Marshal(struct {
		XMLName   xml.Name `xml:"ErrorResponse"`
		Namespace string   `xml:"xmlns,attr"`
		Error     inner
		RequestID string `xml:"RequestId"`
	}{Namespace: namespace(version), Error: inner{who, f.code, f.message}, RequestID: requestID})
}

// members is a list as the Query protocol writes it; an empty one is there, and empty.
type members[T any] struct {
	Items []T `xml:"member"`
}

// reply is what goes back.
type reply struct {
	status int
	id     string
	body   []byte
}

// send writes a reply as one write, when the connection is one of Serve's.
func (p reply) send(w http.ResponseWriter, r *http.Request) {
	conn, _ := r.Context().Value(connKey{}).(*holdingConn)
	w.Header().Set("Content-Type", "text/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(p.body)))
	w.Header().Set("X-Amzn-Requestid", p.id)
	conn.hold()
	defer conn.release()
	w.WriteHeader(p.status)
	// A failure here is a client that is gone.
	_, _ = w.Write(p.body)
	_ = http.NewResponseController(w).Flush()
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

type holdingListener struct{ net.Listener }

func (l holdingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &holdingConn{Conn: c}, nil
}

// holdingConn collects what is written between hold and release. Both are called by the handler that owns the connection
// at that time (HTTP/1.1 has one), so that nothing needs a lock.
type holdingConn struct {
	net.Conn
	holding bool
	held    bytes.Buffer
}

func (c *holdingConn) Write(b []byte) (int, error) {
	if c.holding {
		return c.held.Write(b)
	}
	return c.Conn.Write(b)
}

func (c *holdingConn) hold() {
	if c != nil {
		c.holding = true
	}
}

func (c *holdingConn) release() {
	if c == nil {
		return
	}
	c.holding = false
	_, _ = c.Conn.Write(c.held.Bytes()) // a failure here is a client that is gone
	c.held.Reset()
}

// timestamp is a time as the Query protocol writes it.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
