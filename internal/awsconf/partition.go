// Package awsconf knows facts about AWS that both the key store in S3 and the command line need.
package awsconf

import "strings"

// Partition returns the part of AWS that a region belongs to, as ARNs name it: "aws" for a commercial or unknown
// region. The prefixes are those of the SDK's own list, which it does not export; a test compares the two.
func Partition(region string) string {
	for _, p := range [...]struct{ prefix, partition string }{
		{"cn-", "aws-cn"}, {"us-gov-", "aws-us-gov"}, {"eusc-", "aws-eusc"}, {"us-iso-", "aws-iso"}, {"us-isob-", "aws-iso-b"},
		{"eu-isoe-", "aws-iso-e"}, {"us-isof-", "aws-iso-f"}, {"eu-isof-", "aws-iso-f"},
	} {
		if strings.HasPrefix(region, p.prefix) {
			return p.partition
		}
	}
	return "aws"
}
