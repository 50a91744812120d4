package contract

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/process"
)

// TestHTTP runs testdata/http/*.txt against keypostd serving testdata/keysets. A script has cases of one connection
// each, and every header of every answer is in it:
//
//	let NAME               a group of header lines, indented, for "< $NAME"
//	== TITLE               begins a case
//	> GET / HTTP/1.1       bytes to send, a line ending in CR LF; {x*9} is xxxxxxxxx, \r \n \t \0 as in Go
//	>| hello               bytes to send without the line end
//	< 200                  the status, then the headers in any order; "Date: *" for any date
//	<= {"keys":[]}         the body, none if left out; \n as in Go
//	< closed               the server has closed the connection after that
func TestHTTP(t *testing.T) {
	s := newSettings(t)
	must(t, os.CopyFS(filepath.Join(s.dir), os.DirFS("testdata/keysets")))
	v := ready(t, s)
	files, err := filepath.Glob("testdata/http/*.txt")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("no scripts")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			for _, c := range parseScript(t, file, string(text)) {
				t.Run(c.title, func(t *testing.T) { c.run(t, v) })
			}
		})
	}
}

// scriptCase is one connection: requests, each with the answer to it.
type scriptCase struct {
	title, at string
	exchanges []*exchange
}

type exchange struct {
	raw  []byte // HTTP/1: bytes to send
	want response
}

type response struct {
	status int
	header []string // "Name: value", sorted
	body   string
	closed bool
}

// scriptParser reads a script line by line.
type scriptParser struct {
	groups map[string][]string
	group  string // being read
	cases  []*scriptCase
}

func parseScript(t *testing.T, file, text string) []*scriptCase {
	t.Helper()
	p := &scriptParser{groups: map[string][]string{}}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\n")
		if err := p.line(line, fmt.Sprintf("%s:%d", file, n)); err != nil {
			t.Fatalf("%s:%d: %v", file, n, err)
		}
	}
	return p.cases
}

func (p *scriptParser) line(line, at string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case line == "" || line[0] == '#':
		return nil
	case word == "let":
		p.group = rest
		return nil
	case word == "" && p.group != "":
		p.groups[p.group] = append(p.groups[p.group], strings.TrimSpace(line))
		return nil
	case word == "==":
		p.group = ""
		p.cases = append(p.cases, &scriptCase{title: rest, at: at})
		return nil
	case len(p.cases) == 0:
		return fmt.Errorf("%q before the first case", line)
	}
	return p.exchangeLine(word, rest)
}

func (p *scriptParser) exchangeLine(word, rest string) error {
	c := p.cases[len(p.cases)-1]
	sending := word == ">" || word == ">|"
	if n := len(c.exchanges); sending && (n == 0 || c.exchanges[n-1].want.status != 0) {
		c.exchanges = append(c.exchanges, &exchange{})
	}
	if len(c.exchanges) == 0 {
		return fmt.Errorf("an answer without a request")
	}
	e := c.exchanges[len(c.exchanges)-1]
	switch word {
	case ">":
		e.raw = append(e.raw, unescape(rest)+"\r\n"...)
	case ">|":
		e.raw = append(e.raw, unescape(rest)...)
	case "<=":
		e.want.body += unescape(rest)
	case "<":
		return p.headerLine(&e.want, rest)
	default:
		return fmt.Errorf("unknown word %q", word)
	}
	return nil
}

func (p *scriptParser) headerLine(want *response, rest string) error {
	group, isGroup := strings.CutPrefix(rest, "$")
	switch status, err := strconv.Atoi(rest); {
	case err == nil:
		want.status = status
	case rest == "closed":
		want.closed = true
	case isGroup && p.groups[group] == nil:
		return fmt.Errorf("no group %q", group)
	case isGroup:
		want.header = append(want.header, p.groups[group]...)
	default:
		want.header = append(want.header, rest)
	}
	slices.Sort(want.header)
	return nil
}

var repetition = regexp.MustCompile(`\{(.)\*(\d+)\}`)

func unescape(s string) string {
	s = strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\t`, "\t", `\0`, "\x00").Replace(s)
	return repetition.ReplaceAllStringFunc(s, func(m string) string {
		parts := repetition.FindStringSubmatch(m)
		n, _ := strconv.Atoi(parts[2])
		return strings.Repeat(parts[1], n)
	})
}

func (c *scriptCase) run(t *testing.T, v *server) {
	conn, err := tls.Dial("tcp", v.public, &tls.Config{RootCAs: v.roots(t), ServerName: "oidc.example.com"})
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(process.Patience)))
	r := bufio.NewReader(conn)
	for _, e := range c.exchanges {
		got, err := askHTTP1(conn, r, e)
		if err != nil {
			t.Fatalf("%s: %v", c.at, err)
		}
		e.want.check(t, c.at, got)
	}
	checkNothingFollows(t, conn, r)
}

// check compares everything; "Date: *" in the script stands for any date that parses.
func (want response) check(t *testing.T, at string, got response) {
	t.Helper()
	header := slices.Clone(got.header)
	for i, h := range header {
		if value, isDate := strings.CutPrefix(h, "Date: "); isDate {
			if _, err := time.Parse("Mon, 02 Jan 2006 15:04:05 GMT", value); err == nil {
				header[i] = "Date: *"
			}
		}
	}
	if got.status != want.status || got.body != want.body || !slices.Equal(header, want.header) || want.closed && !got.closed {
		t.Errorf("%s:\ngot  %d (closed: %v)\n  %s\n  body %q\nwant %d (closed: %v)\n  %s\n  body %q",
			at, got.status, got.closed, strings.Join(header, "\n  "), got.body, want.status, want.closed, strings.Join(want.header, "\n  "), want.body)
	}
}

// askHTTP1 sends bytes as they are and reads one answer, without a client's opinion about either.
func askHTTP1(conn net.Conn, r *bufio.Reader, e *exchange) (response, error) {
	if _, err := conn.Write(e.raw); err != nil {
		return response{}, err
	}
	text := textproto.NewReader(r)
	line, err := text.ReadLine()
	if err != nil {
		return response{}, fmt.Errorf("no answer: %w", err)
	}
	var got response
	var minor int
	if _, err := fmt.Sscanf(line, "HTTP/1.%d %d ", &minor, &got.status); err != nil {
		return response{}, fmt.Errorf("the answer begins with %q", line)
	}
	header, err := text.ReadMIMEHeader()
	if err != nil {
		return response{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			got.header = append(got.header, name+": "+value)
		}
	}
	got.body, err = readBody(r, header, !bytes.HasPrefix(e.raw, []byte("HEAD ")) && got.status != 304)
	if err == nil && e.want.closed {
		_, end := r.ReadByte()
		got.closed = end == io.EOF
	}
	return got, err
}

func readBody(r io.Reader, header textproto.MIMEHeader, has bool) (string, error) {
	length, err := strconv.Atoi(header.Get("Content-Length"))
	switch {
	case !has:
		return "", nil
	case err != nil: // net/http's own refusals end with the connection
		data, err := io.ReadAll(r)
		return string(data), err
	}
	data := make([]byte, length)
	_, err = io.ReadFull(r, data)
	return string(data), err
}

// checkNothingFollows ends the connection and fails if there was more to read: half an answer too many would become
// the answer to somebody's next request.
func checkNothingFollows(t *testing.T, conn *tls.Conn, r io.Reader) {
	t.Helper()
	_ = conn.CloseWrite() // the server may have closed first
	rest, err := io.ReadAll(r)
	if len(rest) > 0 {
		t.Errorf("after the answers: %q (%v)", rest, err)
	}
}
