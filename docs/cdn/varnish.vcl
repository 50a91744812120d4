# Varnish in front of keypostd. It speaks plain HTTP to both sides: end TLS before it (hitch, nginx, a load balancer), and
# let keypostd listen with tls.mode off on an address that only Varnish reaches. ORIGIN_HOST, ORIGIN_PORT and SECRET are yours.
# It holds the secret: let root own it and the group of varnishd alone read it (chown root:varnish, chmod 0640). Whoever may run varnishadm
# reads it too (vcl.show): leave /etc/varnish/secret to root, and -T on loopback.
# Tested with Varnish 7.1: test/e2e, TestBehindCaches and TestStrangersBehindCaches.
vcl 4.1;

import std;

backend keypostd {
	.host = "ORIGIN_HOST";
	.port = "ORIGIN_PORT";
	# One try that ends before STS does (5 s).
	.connect_timeout = 1s;
	.first_byte_timeout = 2s;
	.between_bytes_timeout = 1s;
	.probe = {
		.request = "HEAD / HTTP/1.1" "Host: probe.invalid" "X-Origin-Secret: SECRET" "Connection: close";
		.expected_response = 404;
		.interval = 2s;
		.timeout = 1s;
		.window = 3;
		.threshold = 2;
		.initial = 2;
	}
}

sub vcl_recv {
	if (req.method != "GET" && req.method != "HEAD") {
		return (synth(405));
	}
	unset req.http.Cookie;
	unset req.http.Authorization;
	unset req.http.X-Origin-Secret;
	set req.url = regsub(req.url, "\?.*$", "");
	# One copy of each document. keypostd answers all of these alike, and strangers could fill the cache with them: another port, a
	# dot at the end or upper case in Host, and URLs of any scheme.
	set req.http.Host = regsub(regsub(std.tolower(req.http.Host), ":[^:]*$", ""), "\.$", "");
	if (req.url !~ "^/") {
		return (pass);
	}
	# keypostd's stale-while-revalidate while it is well, and its stale-if-error beyond that: also once it has answered 5xx.
	if (req.restarts == 0 && std.healthy(req.backend_hint)) {
		set req.grace = 5m;
	} else {
		set req.grace = 365d; # no longer than the copy's own
	}
	return (hash);
}

sub vcl_backend_fetch {
	set bereq.http.X-Origin-Secret = "SECRET";
}

sub vcl_backend_response {
	unset beresp.http.Set-Cookie;
	if (beresp.status == 200) {
		# Varnish reads stale-while-revalidate by itself, and not stale-if-error. The gates count with what keypostd sends.
		if (std.duration(regsub(beresp.http.Cache-Control, "^.*stale-if-error=([0-9]+).*$", "\1s"), 0s) > beresp.grace) {
			set beresp.grace = std.duration(regsub(beresp.http.Cache-Control, "^.*stale-if-error=([0-9]+).*$", "\1s"), 0s);
		}
	} elsif (beresp.status == 404) {
		# Not kept, or whoever asks for enough paths empties the cache. The second lets requests for the same path not wait for each other.
		set beresp.uncacheable = true;
		set beresp.ttl = 1s;
		set beresp.grace = 0s;
		set beresp.keep = 0s;
	} else {
		if (bereq.is_bgfetch || beresp.status >= 500) {
			return (abandon); # keep the copy, which any answer would replace
		}
		set beresp.uncacheable = true;
		set beresp.ttl = 0s;
		return (deliver);
	}
}

sub vcl_backend_error {
	return (abandon);
}

sub vcl_synth {
	if (resp.status == 503 && req.restarts == 0) {
		return (restart); # for the copy that may be given for stale-if-error
	}
}

sub vcl_deliver {
	if (obj.hits > 0) {
		set resp.http.X-Cache = "HIT";
	} else {
		set resp.http.X-Cache = "MISS";
	}
}
