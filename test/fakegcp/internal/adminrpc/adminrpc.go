// Package adminrpc serves the gRPC form of IAM's service accounts and custom roles, google.iam.admin.v1, by turning every call
// into the REST call that means the same, and its answer back (https://google.aip.dev/127). It holds no state and checks
// nothing. Messages are read and written by their field numbers; a field that is not in the tables here is passed over.
// Details of errors are left out: a code and a sentence are what comes back.
package adminrpc

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// kind says how a field is written, in protobuf and in JSON.
type kind int

const (
	text  kind = iota
	blob       // bytes, in JSON base64
	flag       // bool
	count      // int32
	enum       // by its names
	inner      // a message
	mask       // google.protobuf.FieldMask, in JSON names with commas between
)

type field struct {
	name  string
	kind  kind
	many  bool
	names []string // of an enum
	of    message
}

// message is the fields of a message by number.
type message map[protowire.Number]field

// method is one call: the REST call that it becomes, and its messages. A request's fields become {…} of the path, the body
// (all the rest, or the one named), or else the query.
type method struct {
	verb, path string
	body       string // "*": all the rest; empty: none
	in, out    message
}

func methods() map[string]method {
	account := message{1: {name: "name"}, 2: {name: "projectId"}, 4: {name: "uniqueId"}, 5: {name: "email"}, 6: {name: "displayName"},
		7: {name: "etag", kind: blob}, 8: {name: "description"}, 9: {name: "oauth2ClientId"}, 11: {name: "disabled", kind: flag}}
	role := message{1: {name: "name"}, 2: {name: "title"}, 3: {name: "description"}, 7: {name: "includedPermissions", many: true},
		8: {name: "stage", kind: enum, names: []string{"ALPHA", "BETA", "GA", "", "DEPRECATED", "DISABLED", "EAP"}},
		9: {name: "etag", kind: blob}, 11: {name: "deleted", kind: flag}}
	named := message{1: {name: "name"}}
	guarded := message{1: {name: "name"}, 2: {name: "etag", kind: blob}}
	next := field{name: "nextPageToken"}
	return map[string]method{
		"ListServiceAccounts": {"GET", "{name}/serviceAccounts", "",
			message{1: {name: "name"}, 2: {name: "pageSize", kind: count}, 3: {name: "pageToken"}},
			message{1: {name: "accounts", kind: inner, many: true, of: account}, 2: next}},
		"GetServiceAccount": {"GET", "{name}", "", named, account},
		"CreateServiceAccount": {"POST", "{name}/serviceAccounts", "*",
			message{1: {name: "name"}, 2: {name: "accountId"}, 3: {name: "serviceAccount", kind: inner, of: account}}, account},
		"DeleteServiceAccount":   {"DELETE", "{name}", "", named, message{}},
		"UndeleteServiceAccount": {"POST", "{name}:undelete", "*", named, message{1: {name: "restoredAccount", kind: inner, of: account}}},
		"ListRoles": {"GET", "{parent}/roles", "",
			message{1: {name: "parent"}, 2: {name: "pageSize", kind: count}, 3: {name: "pageToken"},
				4: {name: "view", kind: enum, names: []string{"BASIC", "FULL"}}, 6: {name: "showDeleted", kind: flag}},
			message{1: {name: "roles", kind: inner, many: true, of: role}, 2: next}},
		"GetRole": {"GET", "{name}", "", named, role},
		"CreateRole": {"POST", "{parent}/roles", "*",
			message{1: {name: "parent"}, 2: {name: "roleId"}, 3: {name: "role", kind: inner, of: role}}, role},
		"UpdateRole": {"PATCH", "{name}", "role",
			message{1: {name: "name"}, 2: {name: "role", kind: inner, of: role}, 3: {name: "updateMask", kind: mask}}, role},
		"DeleteRole":   {"DELETE", "{name}", "", guarded, role},
		"UndeleteRole": {"POST", "{name}:undelete", "*", guarded, role},
	}
}

// Is reports whether a request is a call of gRPC.
func Is(r *http.Request) bool {
	return r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// Handler answers gRPC calls through rest, which has the paths below /v1/.
func Handler(rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, known := methods()[strings.TrimPrefix(r.URL.Path, "/google.iam.admin.v1.IAM/")]
		if !known {
			end(w, 12, "fakegcp has no method "+r.URL.Path)
			return
		}
		b, err := m.serve(rest, r)
		var refused *refusal
		switch {
		case errors.As(err, &refused):
			end(w, code(refused.Status), refused.Message)
		case err != nil:
			end(w, 13, err.Error())
		default:
			w.Header().Set("Content-Type", "application/grpc")
			_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)) //nolint:gosec // a list of accounts
			end(w, 0, "")
		}
	})
}

// end ends a call in trailers.
func end(w http.ResponseWriter, status int, sentence string) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(status))
	w.Header().Set(http.TrailerPrefix+"Grpc-Message", strings.ReplaceAll(url.QueryEscape(sentence), "+", "%20"))
	w.WriteHeader(http.StatusOK)
}

// code is the number of google.rpc.Code.
func code(name string) int {
	return map[string]int{"INVALID_ARGUMENT": 3, "NOT_FOUND": 5, "ALREADY_EXISTS": 6, "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8,
		"FAILED_PRECONDITION": 9, "ABORTED": 10, "INTERNAL": 13, "UNAVAILABLE": 14, "UNAUTHENTICATED": 16}[name]
}

// refusal is what REST answers when it refuses.
type refusal struct{ Message, Status string }

func (r *refusal) Error() string { return r.Status + ": " + r.Message }

// serve makes one call.
func (m method) serve(rest http.Handler, r *http.Request) ([]byte, error) {
	frame, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if len(frame) < 5 || frame[0] != 0 || int(binary.BigEndian.Uint32(frame[1:5])) != len(frame)-5 {
		return nil, errors.New("the call is not one message, uncompressed")
	}
	said, err := m.in.parse(frame[5:])
	if err != nil {
		return nil, err
	}
	call, err := m.request(said, r)
	if err != nil {
		return nil, err
	}
	answer := httptest.NewRecorder()
	rest.ServeHTTP(answer, call)
	if answer.Code != http.StatusOK {
		var f struct{ Error refusal }
		if err := json.Unmarshal(answer.Body.Bytes(), &f); err != nil {
			return nil, err
		}
		return nil, &f.Error
	}
	var result map[string]any
	if err := json.Unmarshal(answer.Body.Bytes(), &result); err != nil {
		return nil, err
	}
	return m.out.format(result)
}

// request is the REST call.
func (m method) request(said map[string]any, r *http.Request) (*http.Request, error) {
	path := m.path
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if s, ok := said[name].(string); ok && strings.Contains(path, "{"+name+"}") {
			path = strings.ReplaceAll(path, "{"+name+"}", s)
			delete(said, name)
		}
	}
	var body any
	switch m.body {
	case "":
	case "*":
		body, said = said, nil
	default:
		body = said[m.body]
		delete(said, m.body)
	}
	query := url.Values{}
	for name, v := range said {
		query.Set(name, fmt.Sprint(v))
	}
	b := []byte{}
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	call, err := http.NewRequestWithContext(r.Context(), m.verb, "/v1/"+path+"?"+query.Encode(), bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	call.Host = r.Host
	call.Header.Set("Authorization", r.Header.Get("Authorization"))
	return call, nil
}

// parse reads a message as JSON's members.
func (m message) parse(b []byte) (map[string]any, error) {
	said := map[string]any{}
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		f, known := m[number]
		if n = protowire.ConsumeFieldValue(number, wire, b); n < 0 {
			return nil, protowire.ParseError(n)
		}
		value := b[:n]
		b = b[n:]
		if !known {
			continue
		}
		v, err := f.parse(wire, value)
		if err != nil {
			return nil, err
		}
		if f.many {
			l, _ := said[f.name].([]any)
			v = append(l, v)
		}
		said[f.name] = v
	}
	return said, nil
}

func (f field) parse(wire protowire.Type, value []byte) (any, error) {
	if wire == protowire.VarintType {
		n, _ := protowire.ConsumeVarint(value)
		switch f.kind {
		case flag:
			return n != 0, nil
		case enum:
			if n < uint64(len(f.names)) {
				return f.names[n], nil
			}
		case count:
			return n, nil
		}
		return nil, fmt.Errorf("%s has the value %d", f.name, n)
	}
	b, _ := protowire.ConsumeBytes(value)
	switch f.kind {
	case text:
		return string(b), nil
	case blob:
		return base64.StdEncoding.EncodeToString(b), nil
	case inner:
		return f.of.parse(b)
	case mask:
		paths, err := message{1: {name: "paths", many: true}}.parse(b)
		l, _ := paths["paths"].([]any)
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(l), " ", ","), "[]"), err
	}
	return nil, fmt.Errorf("%s is written in a strange way", f.name)
}

// format writes JSON's members as a message.
func (m message) format(members map[string]any) ([]byte, error) {
	var b []byte
	for _, number := range slices.Sorted(maps.Keys(m)) {
		f := m[number]
		v, ok := members[f.name]
		if !ok {
			continue
		}
		l, many := v.([]any)
		if !many {
			l = []any{v}
		}
		for _, v := range l {
			var err error
			if b, err = f.format(b, number, v); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

func (f field) format(b []byte, number protowire.Number, v any) ([]byte, error) {
	switch v := v.(type) {
	case bool:
		return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), protowire.EncodeBool(v)), nil
	case map[string]any:
		content, err := f.of.format(v)
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), content), err
	case string:
		switch f.kind {
		case enum:
			n := max(slices.Index(f.names, v), 0)
			return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(n)), nil
		case blob:
			content, err := base64.StdEncoding.DecodeString(v)
			return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), content), err
		}
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), v), nil
	}
	return nil, fmt.Errorf("%s is %T", f.name, v)
}
