# Varnish in front of keypostd. It speaks plain HTTP to both sides: end TLS before it (hitch, nginx, a load balancer), and
# let keypostd listen with tls.mode off on an address that only Varnish reaches. ORIGIN_HOST, ORIGIN_PORT and SECRET are yours.
# Tested with Varnish 7.1: test/e2e, TestBehindCaches.
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
	# keypostd's stale-while-revalidate while it is well, and its stale-if-error beyond that.
	if (std.healthy(req.backend_hint)) {
		set req.grace = 5m;
	}
	return (hash);
}

sub vcl_backend_fetch {
	set bereq.http.X-Origin-Secret = "SECRET";
}

sub vcl_backend_response {
	unset beresp.http.Set-Cookie;
	if (beresp.status == 200) {
		set beresp.grace = 24h + 5m;
	} elsif (beresp.status == 404) {
		set beresp.grace = 0s;
		if (beresp.ttl > 60s) {
			set beresp.ttl = 60s;
		}
	} else {
		if (bereq.is_bgfetch) {
			return (abandon); # keep the copy
		}
		set beresp.uncacheable = true;
		set beresp.ttl = 0s;
		return (deliver);
	}
}

sub vcl_deliver {
	if (obj.hits > 0) {
		set resp.http.X-Cache = "HIT";
	} else {
		set resp.http.X-Cache = "MISS";
	}
}
