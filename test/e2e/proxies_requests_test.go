//go:build e2e

package e2e

import "strings"

// rawRequest is bytes that a client sends on one connection, and what they may be answered with. In text, {A} is the host
// of the issuer that is asked for and {a} its path, empty where the issuer has a host of its own; {B} and {b} are those of
// another issuer, on the same host or on one of its own.
type rawRequest struct {
	name string
	text string
	// may is which documents answers may have, in their order, by the reading of RFC 9110, 9112 and 3986: A and B are the issuers'
	// keys.json. An answer may be missing; none may be another's. "|" stands between two readings. Behind a "!" is what the bytes name
	// to a lenient server, while one that goes by the letter refuses them or finds nothing.
	may string
	// mayOnPaths replaces may where the two issuers are paths of one host, unless it is empty.
	mayOnPaths string
	head       bool // the answer to HEAD has no body
}

// raw returns a request that is written out.
func raw(name, may, text string) rawRequest {
	return rawRequest{name: name, text: text, may: may}
}

// lines returns a head of an HTTP/1 message.
func lines(all ...string) string { return strings.Join(all, "\r\n") + "\r\n\r\n" }

// with returns a request for A's keys with more fields.
func with(name, may string, fields ...string) rawRequest {
	return raw(name, may, lines(append([]string{"GET {a}/keys.json HTTP/1.1", "Host: {A}", "Connection: close"}, fields...)...))
}

// target returns a request with another target.
func target(name, may, t string) rawRequest {
	return raw(name, may, lines("GET "+t+" HTTP/1.1", "Host: {A}", "Connection: close"))
}

// method returns a request with another method.
func method(name, m string, rest ...string) rawRequest {
	return raw(name, "", lines(append([]string{m + " {a}/keys.json HTTP/1.1", "Host: {A}", "Connection: close"}, rest...)...))
}

// hosted returns a request with these lines in place of the Host field.
func hosted(name, may string, fields ...string) rawRequest {
	return raw(name, may, lines(append(append([]string{"GET {a}/keys.json HTTP/1.1"}, fields...), "Connection: close")...))
}

// framed returns a request with fields that say how long its body is, and that body.
func framed(name, may, body string, fields ...string) rawRequest {
	return raw(name, may, lines(append([]string{"GET {a}/keys.json HTTP/1.1", "Host: {A}"}, fields...)...)+body)
}

const (
	// getA and getB are whole requests, getB the last one on its connection.
	getA = "GET {a}/keys.json HTTP/1.1\r\nHost: {A}\r\n\r\n"
	getB = "GET {b}/keys.json HTTP/1.1\r\nHost: {B}\r\nConnection: close\r\n\r\n"
)

func rawRequests() []rawRequest {
	var all []rawRequest
	for _, some := range [][]rawRequest{methodRequests(), targetRequests(), encodedTargets(), hostRequests(), fieldRequests(), lengthRequests(), chunkedRequests(), versionRequests(), lineRequests(), cacheRequests()} {
		all = append(all, some...)
	}
	return all
}

func methodRequests() []rawRequest {
	head := method("HEAD", "HEAD")
	head.head = true
	get := method("get in lower case", "get")
	get.may = "!A"
	return []rawRequest{
		with("GET", "A"),
		target("GET of the discovery document", "A discovery", "{a}/.well-known/openid-configuration"),
		head,
		method("POST without a body", "POST", "Content-Length: 0"),
		raw("POST with a body", "", lines("POST {a}/keys.json HTTP/1.1", "Host: {A}", "Connection: close", "Content-Length: 3")+"abc"),
		raw("PUT with a body", "", lines("PUT {a}/keys.json HTTP/1.1", "Host: {A}", "Connection: close", "Content-Length: 3")+"abc"),
		method("DELETE", "DELETE"), method("PURGE", "PURGE"), method("OPTIONS", "OPTIONS"), method("TRACE", "TRACE"),
		raw("OPTIONS *", "", lines("OPTIONS * HTTP/1.1", "Host: {A}", "Connection: close")),
		raw("GET *", "", lines("GET * HTTP/1.1", "Host: {A}", "Connection: close")),
		raw("CONNECT", "", lines("CONNECT {B}:443 HTTP/1.1", "Host: {B}:443", "Connection: close")),
		get,
		method("an unknown method", "FROB"),
		method("a method with a bad character", "G@T"),
		with("method override to DELETE", "A", "X-HTTP-Method-Override: DELETE", "X-HTTP-Method: DELETE", "X-Method-Override: DELETE"),
		method("POST, method override to GET", "POST", "Content-Length: 0", "X-HTTP-Method-Override: GET"),
	}
}

func targetRequests() []rawRequest {
	return []rawRequest{
		target("absolute form", "A", "https://{A}{a}/keys.json"),
		target("absolute form, http", "A", "http://{A}{a}/keys.json"),
		target("absolute form, another scheme", "A", "ftp://{A}{a}/keys.json"),
		target("absolute form, another host than Host", "B", "https://{B}{b}/keys.json"),
		target("absolute form, http, another host than Host", "!B|A", "http://{B}{b}/keys.json"), // http: URLs belong to no issuer
		target("absolute form, a stranger's host", "", "https://stranger.example{a}/keys.json"),
		target("absolute form with userinfo", "A", "https://{B}@{A}{a}/keys.json"),
		target("absolute form in upper case", "A", "HTTPS://{A}{a}/keys.json"),
		target("absolute form with a port", "A", "https://{A}:443{a}/keys.json"),
		target("absolute form without a host", "", "https:///{A}{a}/keys.json"),
		raw("absolute form without Host", "!A", lines("GET https://{A}{a}/keys.json HTTP/1.1", "Connection: close")),
		target("a target without a slash", "!A", "keys.json"),
		target("a target that looks like a host", "", "//{B}{b}/keys.json"),
		target("a fragment", "A", "{a}/keys.json#x"),
		target("a query", "A", "{a}/keys.json?x=1"),
		target("a query with a path", "A", "{a}/keys.json?/../..{b}/keys.json"),
		target("a path parameter", "", "{a}/keys.json;x=1"),
		target("a path parameter in the middle", "", "{a};x/keys.json"),
		target("another case", "", "{a}/KEYS.JSON"),
		target("a slash more at the end", "", "{a}/keys.json/"),
		target("a long path", "", "{a}/"+strings.Repeat("x", 8000)),
		raw("a space in the target", "", lines("GET {a}/keys.json x HTTP/1.1", "Host: {A}", "Connection: close")),
		raw("tabs in the request line", "A", lines("GET\t{a}/keys.json\tHTTP/1.1", "Host: {A}", "Connection: close")),
		raw("two spaces in the request line", "A", lines("GET  {a}/keys.json  HTTP/1.1", "Host: {A}", "Connection: close")),
	}
}

func encodedTargets() []rawRequest {
	up := target("dot segments to the other issuer", "A", "{a}/..{b}/keys.json") // /../keys.json where the host tells them apart
	encodedUp := target("encoded dot segments to the other issuer", "A", "{a}/%2e%2e{b}/keys.json")
	upWithSlash := target("dot segments with an encoded slash", "!A", "{a}/..%2f.{b}/keys.json")
	up.mayOnPaths, encodedUp.mayOnPaths, upWithSlash.mayOnPaths = "B", "B", "!B"
	return []rawRequest{
		target("an encoded letter", "A", "{a}/%6beys.json"),
		target("an encoded dot", "A", "{a}/keys%2Ejson"),
		target("an encoded slash", "!A", "{a}%2Fkeys.json"),
		target("twice encoded", "", "{a}/%256beys.json"),
		target("an encoding that is none", "", "{a}/keys%zzjson"),
		target("a percent sign at the end", "", "{a}/keys.json%"),
		target("a dot segment", "A", "{a}/./keys.json"),
		target("two dot segments", "A", "{a}/x/../keys.json"),
		up, encodedUp, upWithSlash,
		target("more dot segments than path", "A", "/../../..{a}/keys.json"),
		target("a backslash", "", "{a}\\keys.json"),
		target("dot segments with a backslash", "", "{a}/x/..\\keys.json"),
		target("an encoded backslash", "", "{a}/x/..%5ckeys.json"),
		target("two slashes", "!A", "{a}//keys.json"),
		target("two slashes in front", "!A", "/{a}/keys.json"),
		target("an encoded NUL", "", "{a}/keys.json%00"),
		target("an encoded NUL and more", "", "{a}/keys.json%00{b}/keys.json"),
		target("a NUL", "", "{a}/keys.json\x00"),
		target("bytes beyond ASCII", "", "{a}/kéys.json"),
		target("an overlong slash", "", "{a}%c0%afkeys.json"),
		target("an encoded line end", "", "{a}/keys.json%0d%0aHost:%20{B}"),
		target("an encoded question mark", "", "{a}/keys.json%3fx"),
		target("an encoded hash", "", "{a}/keys.json%23x"),
	}
}

func hostRequests() []rawRequest {
	return []rawRequest{
		hosted("no Host", ""),
		hosted("an empty Host", "", "Host:"),
		hosted("two hosts", "!A|B", "Host: {A}", "Host: {B}"),
		hosted("two hosts, the second one asked for", "!A", "Host: stranger.example", "Host: {A}"),
		hosted("the same Host twice", "!A", "Host: {A}", "Host: {A}"),
		hosted("two hosts in one line", "", "Host: {A}, {B}"),
		hosted("Host with a port", "A", "Host: {A}:443"),
		hosted("Host with another port", "A", "Host: {A}:8443"),
		hosted("Host with a port that is none", "!A", "Host: {A}:x"),
		hosted("Host with an empty port", "A", "Host: {A}:"),
		hosted("Host in upper case", "A", "Host: {A^}"),
		hosted("Host with a dot at the end", "A", "Host: {A}."),
		hosted("Host with userinfo", "", "Host: {B}@{A}"),
		hosted("Host with a path", "", "Host: {A}/{b}"),
		hosted("Host with a query", "", "Host: {A}?{B}"),
		hosted("Host with a space", "", "Host: {A} {B}"),
		hosted("Host with a NUL", "", "Host: {A}\x00.{B}"),
		hosted("Host with bytes beyond ASCII", "", "Host: {A}\u212a"),
		hosted("a stranger's Host", "", "Host: stranger.example"),
		hosted("Host in brackets", "", "Host: [::1]"),
		hosted("a space before the colon of Host", "!A", "Host : {A}"),
		hosted("more white space around Host", "A", "Host: \t {A} \t"),
		hosted("Host on a second line", "A", "Host:", " {A}"),
		hosted("two Hosts, the first with a space before it", "A", " Host: {B}", "Host: {A}"),
		hosted("host in lower case", "A", "host: {A}"),
	}
}

func fieldRequests() []rawRequest {
	return []rawRequest{
		with("X-Forwarded-Host", "A", "X-Forwarded-Host: {B}", "X-Host: {B}", "X-Forwarded-Server: {B}", "X-HTTP-Host-Override: {B}"),
		with("X-Forwarded-Proto, -Port, -For, -Prefix", "A", "X-Forwarded-Proto: http", "X-Forwarded-Port: 1", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Prefix: {b}", "X-Forwarded-Path: {b}"),
		with("Forwarded", "A", `Forwarded: for=127.0.0.1;host="{B}";proto=http`),
		with("X-Original-URL, X-Rewrite-URL", "A", "X-Original-URL: {b}/keys.json", "X-Rewrite-URL: {b}/keys.json", "X-Original-Host: {B}"),
		with("Connection names Host", "A", "Connection: Host, Cache-Control"),
		with("a field twice", "A", "X-A: 1", "X-A: 2", "Accept: a/b", "Accept: c/d"),
		with("a folded field", "A", "X-A: 1", " Host: {B}"),
		with("a field without a colon", "!A", "X-A"),
		with("a field without a name", "!A", ": x"),
		with("a space in a field's name", "!A", "X A: x"),
		with("a NUL in a field", "!A", "X-A: a\x00b"),
		with("a bare CR in a field", "!A", "X-A: a\rHost: {B}"),
		with("a bare LF, then Host", "!A|B", "X-A: a\nHost: {B}"),
		with("a field of 10 KB", "A", "X-A: "+strings.Repeat("a", 10_000)),
		with("90 fields", "A", strings.Split(strings.Repeat("X-A: a\n", 89)+"X-A: a", "\n")...),
		with("Expect: 100-continue without a body", "A", "Expect: 100-continue"),
		with("an unknown expectation", "A", "Expect: 200-ok"),
		with("Upgrade: h2c", "A", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
		with("Upgrade: websocket", "A", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
		with("Max-Forwards: 0", "A", "Max-Forwards: 0"),
		with("underscores for dashes", "A", "Content_Length: 5", "Transfer_Encoding: chunked"),
	}
}

func lengthRequests() []rawRequest {
	return []rawRequest{
		framed("a body on GET", "A", "abc", "Content-Length: 3", "Connection: close"),
		framed("a request as the body of GET", "A", getB, "Content-Length: {len getB}", "Connection: close"),
		framed("a body on GET, then a request", "A B", "abc"+getB, "Content-Length: 3"),
		framed("two lengths", "!A B", "abc"+getB, "Content-Length: 3", "Content-Length: 0"),
		framed("the same length twice", "A B", "abc"+getB, "Content-Length: 3", "Content-Length: 3"),
		framed("two lengths in one line", "!A", "abc"+getB, "Content-Length: 3, 0"),
		framed("a length with a sign", "!A", "abc"+getB, "Content-Length: +3"),
		framed("a negative length", "!A", getB, "Content-Length: -1"),
		framed("a length in hexadecimal", "!A", "abc"+getB, "Content-Length: 0x3"),
		framed("a length beyond 64 bits", "!A B", getB, "Content-Length: 18446744073709551616"),
		framed("an empty length", "!A B", getB, "Content-Length:"),
		framed("a space before the colon of a length", "!A", "abc"+getB, "Content-Length : 3"),
		framed("a vertical tab before a length", "!A", "abc"+getB, "Content-Length:\v3"),
		framed("Expect: 100-continue with a body", "A", "abc", "Content-Length: 3", "Expect: 100-continue", "Connection: close"),
		framed("a body that does not come", "A", "", "Content-Length: 3", "Connection: close"),
		raw("pipelined: A, B", "A B", getA+getB),
		raw("pipelined: A, B, A", "A B A", getA+strings.Replace(getB, "Connection: close\r\n", "", 1)+strings.Replace(getA, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)),
		raw("pipelined with empty lines between", "A B", getA+"\r\n\r\n"+getB),
		raw("Connection: close, then a request", "A", strings.Replace(getA, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)+getB),
	}
}

func chunkedRequests() []rawRequest {
	const te = "Transfer-Encoding: chunked"
	return []rawRequest{
		framed("a chunked body", "A", "3\r\nabc\r\n0\r\n\r\n", te, "Connection: close"),
		framed("a chunked body, then a request", "A B", "3\r\nabc\r\n0\r\n\r\n"+getB, te),
		framed("CL.TE", "A B", "0\r\n\r\n"+getB, "Content-Length: {len 5+getB}", te),
		framed("TE.CL", "A", "{hex getB}\r\n"+getB+"\r\n0\r\n\r\n", te, "Content-Length: 4"),
		framed("an unknown coding", "!A", "0\r\n\r\n"+getB, "Transfer-Encoding: xchunked"),
		framed("an unknown coding and a length", "!A", "0\r\n\r\n"+getB, "Content-Length: {len 5+getB}", "Transfer-Encoding: xchunked"),
		framed("chunked, then identity", "!A", "0\r\n\r\n"+getB, "Transfer-Encoding: chunked, identity", "Content-Length: {len 5+getB}"),
		framed("identity, then chunked", "!A", "0\r\n\r\n"+getB, "Transfer-Encoding: identity, chunked"),
		framed("gzip, then chunked", "!A", "0\r\n\r\n"+getB, "Transfer-Encoding: gzip, chunked"),
		framed("chunked twice", "!A B", "0\r\n\r\n"+getB, te, te),
		framed("chunked and identity on two lines", "!A B", "0\r\n\r\n"+getB, te, "Transfer-Encoding: identity"),
		framed("a space before the colon of a coding", "!A", "0\r\n\r\n"+getB, "Transfer-Encoding : chunked", "Content-Length: {len 5+getB}"),
		framed("a vertical tab before a coding", "!A B", "0\r\n\r\n"+getB, "Transfer-Encoding:\vchunked", "Content-Length: {len 5+getB}"),
		framed("a coding in quotes", "!A", "0\r\n\r\n"+getB, `Transfer-Encoding: "chunked"`, "Content-Length: {len 5+getB}"),
		framed("a folded coding", "A B", "0\r\n\r\n"+getB, "Transfer-Encoding:", " chunked"),
		framed("a folded coding and a length", "A B", "0\r\n\r\n"+getB, "Transfer-Encoding:", " chunked", "Content-Length: {len 5+getB}"),
		framed("Chunked in upper case", "A", "0\r\n\r\n", "Transfer-Encoding: CHUNKED", "Connection: close"),
		framed("Connection names Content-Length and Transfer-Encoding", "A B", "0\r\n\r\n"+getB, te, "Connection: Transfer-Encoding, Content-Length"),
		framed("a chunk size that is none", "!A B", "0x3\r\nabc\r\n0\r\n\r\n"+getB, te),
		framed("a chunk size beyond 64 bits", "!A", "10000000000000003\r\nabc\r\n0\r\n\r\n"+getB, te),
		framed("a chunk extension", "A B", "3;a=b\r\nabc\r\n0;c\r\n\r\n"+getB, te),
		framed("a chunk extension with a bare LF", "!A B", "3;a\nabc\r\n0\r\n\r\n"+getB, te),
		framed("a chunk that is longer than its size", "!A", "3\r\nabcdef\r\n0\r\n\r\n"+getB, te),
		framed("chunks with bare LF", "!A B", "3\nabc\n0\n\n"+getB, te),
		framed("a trailer with Host", "A B", "0\r\nHost: {B}\r\n\r\n"+getB, te, "Trailer: Host"),
		raw("chunked in HTTP/1.0", "!A B", lines("GET {a}/keys.json HTTP/1.0", "Host: {A}", "Connection: keep-alive", te)+"0\r\n\r\n"+getB),
	}
}

func versionRequests() []rawRequest {
	version := func(name, may, v string) rawRequest {
		return raw(name, may, lines("GET {a}/keys.json "+v, "Host: {A}", "Connection: close"))
	}
	return []rawRequest{
		raw("HTTP/1.0 without Host", "", lines("GET {a}/keys.json HTTP/1.0")),
		raw("HTTP/1.0 with Host", "A", lines("GET {a}/keys.json HTTP/1.0", "Host: {A}")),
		raw("HTTP/1.0 with keep-alive, pipelined", "A B", lines("GET {a}/keys.json HTTP/1.0", "Host: {A}", "Connection: keep-alive")+getB),
		raw("HTTP/0.9", "", "GET {a}/keys.json\r\n"),
		raw("HTTP/0.9 with a host", "!A", "GET https://{A}{a}/keys.json\r\n"),
		version("HTTP/1.2", "A", "HTTP/1.2"),
		version("HTTP/2.0 in an HTTP/1 request line", "!A", "HTTP/2.0"),
		version("HTTP/3.7", "!A", "HTTP/3.7"),
		version("HTTP/1.10", "!A", "HTTP/1.10"),
		version("http/1.1 in lower case", "!A", "http/1.1"),
		version("another protocol", "", "ICE/1.1"),
		raw("a request line of one word", "", lines("GET", "Host: {A}", "Connection: close")),
		raw("HTTP/2's preface in HTTP/1", "", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
	}
}

func lineRequests() []rawRequest {
	return []rawRequest{
		raw("lines that end with LF", "A", strings.ReplaceAll(lines("GET {a}/keys.json HTTP/1.1", "Host: {A}", "Connection: close"), "\r\n", "\n")),
		raw("lines that end with CR", "!A", "GET {a}/keys.json HTTP/1.1\rHost: {A}\rConnection: close\r\r"),
		raw("an empty line first", "A", "\r\n"+lines("GET {a}/keys.json HTTP/1.1", "Host: {A}", "Connection: close")),
		raw("a space first", "!A", " "+lines("GET {a}/keys.json HTTP/1.1", "Host: {A}", "Connection: close")),
		raw("CR CR LF", "!A", "GET {a}/keys.json HTTP/1.1\r\nHost: {A}\r\nX-A: a\r\r\nHost: {B}\r\nConnection: close\r\n\r\n"),
		raw("only the start of a request", "", "GET {a}/keys.json HT"),
		raw("no request at all", "", "\x16\x03\x01\x00\x00"),
	}
}

func cacheRequests() []rawRequest {
	return []rawRequest{
		with("Range", "A", "Range: bytes=0-9"),
		with("Range of the end", "A", "Range: bytes=-5"),
		with("Range of nothing", "A", "Range: bytes=99999-"),
		with("overlapping ranges", "A", "Range: bytes=0-,0-,0-,0-"),
		with("If-Range", "A", `If-Range: "x"`, "Range: bytes=0-9"),
		with("If-None-Match: *", "A", "If-None-Match: *"),
		with("If-None-Match of another document", "A", `If-None-Match: "x", W/"y"`),
		with("If-Match", "A", `If-Match: "x"`),
		with("If-Modified-Since in the future", "A", "If-Modified-Since: Fri, 31 Dec 2100 23:59:59 GMT"),
		with("If-Unmodified-Since long ago", "A", "If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT"),
		with("Cache-Control: no-cache, no-store", "A", "Cache-Control: no-cache, no-store", "Pragma: no-cache"),
		with("Cache-Control: only-if-cached", "A", "Cache-Control: only-if-cached"),
		with("Authorization and Cookie", "A", "Authorization: Basic eDp5", "Cookie: a=b; c=d"),
		with("Accept-Encoding: gzip, br", "A", "Accept-Encoding: gzip, br"),
		with("no encoding is acceptable", "A", "Accept-Encoding: identity;q=0, *;q=0"),
		with("Accept another type", "A", "Accept: text/html", "Accept-Language: tlh", "Accept-Charset: x"),
		with("TE: trailers", "A", "TE: trailers", "Connection: TE"),
	}
}
