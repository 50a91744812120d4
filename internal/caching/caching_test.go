package caching

import (
	"net/http"
	"testing"
	"time"
)

func TestMaxAge(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "public": 0, "max-age=300": 5 * time.Minute, "public, MAX-AGE=60, stale-if-error=86400": time.Minute, "max-age=-1": 0, "max-age=x": 0,
		`max-age="60"`: time.Minute, "max-age=60;public": 0, "max-age=": 0, "max-age=99999999999999999999": 1 << 31 * time.Second,
	} {
		if _, got, _ := Read(value); got != want {
			t.Errorf("max-age of %q is %v, want %v", value, got, want)
		}
	}
}

// A look counts the longest that any cache may take an answer to allow.
func TestLongestFresh(t *testing.T) {
	const week = 7 * 24 * time.Hour
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	later := now.Add(week).Format(http.TimeFormat)
	for name, tt := range map[string]struct {
		header http.Header
		want   time.Duration
	}{
		"nothing":              {http.Header{}, 0},
		"two lines":            {http.Header{"Cache-Control": {"public", "max-age=604800"}}, week},
		"twice":                {http.Header{"Cache-Control": {"max-age=604800, MAX-AGE=0"}}, week},
		"more than a Duration": {http.Header{"Cache-Control": {"max-age=10000000000"}}, 1 << 31 * time.Second},
		"for shared caches":    {http.Header{"Cache-Control": {"max-age=300, s-maxage=604800"}}, week},
		"spaces and quotes":    {http.Header{"Cache-Control": {`max-age = "604800"`}}, week},
		"a fraction":           {http.Header{"Cache-Control": {"max-age=604800.5"}}, week},
		"Expires":              {http.Header{"Date": {now.Format(http.TimeFormat)}, "Expires": {later}}, week},
		"Expires without Date": {http.Header{"Expires": {later}}, week},
		"Expires, Date off":    {http.Header{"Date": {later}, "Expires": {later}}, week},
		"Expires overruled":    {http.Header{"Cache-Control": {"max-age=300"}, "Expires": {later}}, 5 * time.Minute},
		"Expires in the past":  {http.Header{"Expires": {now.Add(-week).Format(http.TimeFormat)}}, 0},
		"Expires far away":     {http.Header{"Expires": {"Fri, 31 Dec 9999 23:59:59 GMT"}}, 1 << 31 * time.Second},
	} {
		if got := Longest(tt.header, now); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestStale(t *testing.T) {
	for name, tt := range map[string]struct {
		lines           []string
		revalidate, err time.Duration
	}{
		"none":      {[]string{"public, max-age=300"}, 0, 0},
		"both":      {[]string{"max-age=300, stale-while-revalidate=60, stale-if-error=3600"}, time.Minute, time.Hour},
		"two lines": {[]string{"stale-while-revalidate=60, stale-if-error=1", "Stale-If-Error=\"3600\", stale-while-revalidate=x"}, time.Minute, time.Hour},
		"absurd":    {[]string{"stale-if-error=99999999999999999999"}, 0, 1 << 31 * time.Second},
	} {
		if revalidate, err := Stale(http.Header{"Cache-Control": tt.lines}); revalidate != tt.revalidate || err != tt.err {
			t.Errorf("%s: %v and %v, want %v and %v", name, revalidate, err, tt.revalidate, tt.err)
		}
	}
}

func TestShared(t *testing.T) {
	for name, tt := range map[string]struct {
		header http.Header
		want   string
	}{
		"none":      {http.Header{"Date": {"x"}, "Server": {"nginx"}}, ""},
		"Age":       {http.Header{"Age": {"7"}}, "Age: 7"},
		"a CDN's":   {http.Header{"Cf-Cache-Status": {"HIT"}}, "Cf-Cache-Status: HIT"},
		"an escape": {http.Header{"Via": {"1.1 \x1b[31mx"}}, "Via: 1.1 ?[31mx"},
	} {
		if got := Shared(tt.header); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestForbidden(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "public, max-age=300": "", "no-store": "no-store", "no-cache": "no-cache", "private": "private", "max-age=300, Private": "private",
		`private="Set-Cookie"`: "private", "max-age=0": "max-age=0", "max-age=x": "max-age=0", "max-age=": "max-age=0", "max-age=00, public": "max-age=0",
		"s-maxage=0": "", "must-revalidate": "", "x-private": "",
	} {
		if got, _, _ := Read(value); got != want {
			t.Errorf("%q is forbidden by %q, want %q", value, got, want)
		}
	}
	for value, want := range map[string]bool{"": false, "public": false, "max-age=0": true, "max-age": true, "max-age=60": true} {
		if _, _, got := Read(value); got != want {
			t.Errorf("%q has a max-age: %t", value, got)
		}
	}
}
