package s3store

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
)

// Options locate the key sets and select credentials. Bucket is required.
type Options struct {
	Bucket   string
	Prefix   string // PATH[/PATH…]; empty for the whole bucket
	Region   string // of the bucket; empty for the configured one
	Profile  string // of the AWS configuration files; empty for the SDK's usual chain
	Endpoint string // base URL of an S3 server that is not AWS; https, or http on loopback
	Account  string // 12 digits: the account that must own the bucket, or every call fails
}

// The forms keep what is put into keys, headers and policies from meaning anything there: "*" or "$" in a prefix would
// be a wildcard in a policy, and some servers resolve "..".
var (
	bucketForm  = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixForm  = regexp.MustCompile(`^[A-Za-z0-9_=-][A-Za-z0-9_=.-]*(/[A-Za-z0-9_=-][A-Za-z0-9_=.-]*)*$`)
	accountForm = regexp.MustCompile(`^[0-9]{12}$`)
)

const maxPrefix = 512 // bytes; a whole key may have 1,024

// Checked returns the options with the prefix in its usual form, or an error if they cannot be used.
func (o Options) Checked() (Options, error) {
	o.Prefix = strings.Trim(o.Prefix, "/")
	switch {
	case !bucketForm.MatchString(o.Bucket):
		return o, fmt.Errorf("%q is not the name of an S3 bucket: lower-case letters, digits, dots and hyphens, 3 to 63", o.Bucket)
	case o.Prefix != "" && !prefixForm.MatchString(o.Prefix) || len(o.Prefix) > maxPrefix:
		return o, fmt.Errorf("the prefix %q is not usable: give names of letters, digits and any of _ = . -, "+
			"none beginning with a dot, separated by /", o.Prefix)
	case o.Account != "" && !accountForm.MatchString(o.Account):
		return o, fmt.Errorf("%q is not an AWS account: it has 12 digits", o.Account)
	case o.Endpoint != "":
		return o, checkEndpoint(o.Endpoint)
	}
	return o, nil
}

// checkEndpoint refuses plain HTTP except on loopback: anyone who can change an answer on the way can make relying parties
// trust keys.
func checkEndpoint(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" { // this is not quoted either
		return errors.New("the endpoint of the S3 server does not have the form https://HOST[:PORT]")
	}
	if u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("the endpoint %s://%s of the S3 server is not https, and not http on a loopback address", u.Scheme, u.Host)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// dir is what every key begins with.
func (o Options) dir() string {
	if o.Prefix == "" {
		return ""
	}
	return o.Prefix + "/"
}

// place names the store in messages.
func (o Options) place() string { return "s3://" + o.Bucket + "/" + o.dir() }
