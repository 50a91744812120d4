package adminrpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// raw hands messages over as the bytes that they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (raw) Unmarshal(b []byte, v any) error { *v.(*[]byte) = append([]byte{}, b...); return nil }
func (raw) Name() string                    { return "proto" }

// fields writes pairs of a number and a value: text, or a number, or a message.
func fields(pairs ...any) []byte {
	var b []byte
	for i := 0; i < len(pairs); i += 2 {
		n := protowire.Number(pairs[i].(int))
		switch v := pairs[i+1].(type) {
		case string:
			b = protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
		case []byte:
			b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
		case int:
			b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
		}
	}
	return b
}

// start serves rest over gRPC, and gives a connection to it.
func start(t *testing.T, rest http.HandlerFunc) *grpc.ClientConn {
	server := httptest.NewUnstartedServer(Handler(rest))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	conn, err := grpc.NewClient(server.Listener.Addr().String(), grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func call(ctx context.Context, conn *grpc.ClientConn, name string, in []byte) (string, error) {
	var out []byte
	err := conn.Invoke(ctx, "/google.iam.admin.v1.IAM/"+name, &in, &out)
	return string(out), err
}

func TestACallBecomesTheRESTCall(t *testing.T) {
	t.Parallel()
	var seen, answer string
	conn := start(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		seen = fmt.Sprintf("%s %s %s", r.Method, r.URL, b)
		io.WriteString(w, answer)
	})
	account := fields(1, "projects/p/serviceAccounts/e", 4, "123", 5, "e", 11, 1)
	role := fields(1, "projects/p/roles/r", 2, "t", 7, "a.b.c", 7, "d.e.f", 8, 2, 9, []byte{1, 2}, 11, 1)
	const roleJSON = `{"name":"projects/p/roles/r","title":"t","includedPermissions":["a.b.c","d.e.f"],"stage":"GA","etag":"AQI=","deleted":true}`
	const accountJSON = `{"name":"projects/p/serviceAccounts/e","uniqueId":"123","email":"e","disabled":true}`
	for _, c := range []struct {
		name string
		in   []byte
		want string
		json string
		out  []byte
	}{
		{"ListServiceAccounts", fields(1, "projects/p", 2, 7, 3, "t"), "GET /v1/projects/p/serviceAccounts?pageSize=7&pageToken=t ",
			`{"accounts":[` + accountJSON + `],"nextPageToken":"n"}`, fields(1, account, 2, "n")},
		{"GetServiceAccount", fields(1, "projects/p/serviceAccounts/e"), "GET /v1/projects/p/serviceAccounts/e? ", accountJSON, account},
		{"CreateServiceAccount", fields(1, "projects/p", 2, "id", 3, fields(6, "d", 99, "unknown")),
			`POST /v1/projects/p/serviceAccounts? {"accountId":"id","serviceAccount":{"displayName":"d"}}`, accountJSON, account},
		{"DeleteServiceAccount", fields(1, "projects/p/serviceAccounts/e"), "DELETE /v1/projects/p/serviceAccounts/e? ", `{}`, nil},
		{"UndeleteServiceAccount", fields(1, "projects/p/serviceAccounts/1"), "POST /v1/projects/p/serviceAccounts/1:undelete? {}",
			`{"restoredAccount":` + accountJSON + `}`, fields(1, account)},
		{"ListRoles", fields(1, "projects/p", 4, 1, 6, 1), "GET /v1/projects/p/roles?showDeleted=true&view=FULL ", `{"roles":[` + roleJSON + `]}`, fields(1, role)},
		{"GetRole", fields(1, "projects/p/roles/r"), "GET /v1/projects/p/roles/r? ", roleJSON, role},
		{"CreateRole", fields(1, "projects/p", 2, "r", 3, role), `POST /v1/projects/p/roles? {"role":{"deleted":true,"etag":"AQI=",` +
			`"includedPermissions":["a.b.c","d.e.f"],"name":"projects/p/roles/r","stage":"GA","title":"t"},"roleId":"r"}`, roleJSON, role},
		{"UpdateRole", fields(1, "projects/p/roles/r", 2, fields(2, "t"), 3, fields(1, "title", 1, "included_permissions")),
			`PATCH /v1/projects/p/roles/r?updateMask=title%2Cincluded_permissions {"title":"t"}`, roleJSON, role},
		{"DeleteRole", fields(1, "projects/p/roles/r", 2, []byte{1, 2}), "DELETE /v1/projects/p/roles/r?etag=AQI%3D ", roleJSON, role},
		{"UndeleteRole", fields(1, "projects/p/roles/r", 2, []byte{1, 2}), `POST /v1/projects/p/roles/r:undelete? {"etag":"AQI="}`, roleJSON, role},
	} {
		answer = c.json
		out, err := call(t.Context(), conn, c.name, c.in)
		if err != nil || seen != c.want || out != string(c.out) {
			t.Errorf("%s: %v\ngot  %s %q\nwant %s %q", c.name, err, seen, out, c.want, c.out)
		}
	}
}

func TestARefusalIsAStatus(t *testing.T) {
	t.Parallel()
	answer := ""
	conn := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, answer)
	})
	for name, want := range map[string]codes.Code{"NOT_FOUND": codes.NotFound, "ALREADY_EXISTS": codes.AlreadyExists, "INVALID_ARGUMENT": codes.InvalidArgument,
		"PERMISSION_DENIED": codes.PermissionDenied, "RESOURCE_EXHAUSTED": codes.ResourceExhausted, "FAILED_PRECONDITION": codes.FailedPrecondition,
		"ABORTED": codes.Aborted, "INTERNAL": codes.Internal, "UNAVAILABLE": codes.Unavailable, "UNAUTHENTICATED": codes.Unauthenticated} {
		answer = `{"error":{"message":"100% «no»","status":"` + name + `"}}`
		_, err := call(t.Context(), conn, "GetRole", fields(1, "projects/p/roles/r"))
		if s := status.Convert(err); s.Code() != want || s.Message() != "100% «no»" {
			t.Errorf("%s: %v", name, err)
		}
	}
	answer = "no JSON"
	for name, in := range map[string][]byte{"GetRole": fields(1, "r"), "Dance": nil, "ListRoles": fields(4, 9), "DeleteRole": {0xff}, "CreateRole": fields(3, 1)} {
		_, err := call(t.Context(), conn, name, in)
		if c := status.Code(err); c != codes.Internal && (name != "Dance" || c != codes.Unimplemented) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnlyACallOfGRPCIsOne(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/google.iam.admin.v1.IAM/GetRole", strings.NewReader("x"))
	r.Header.Set("Content-Type", "application/grpc")
	if Is(r) {
		t.Error("HTTP/1.1 has no trailers that a client of gRPC reads")
	}
	w := httptest.NewRecorder()
	Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	if got := w.Header().Get(http.TrailerPrefix + "Grpc-Status"); got != "13" {
		t.Error(got)
	}
}
