// Package awsconf holds what the users of the AWS SDK share: limits of retries and connections, errors as one sentence,
// and the partitions of AWS.
package awsconf

import "strings"

// Partition returns the part of AWS that a region belongs to, as ARNs name it. A region that is not known belongs to the
// commercial one.
//
// Source: github.com/aws/aws-sdk-go-v2, internal/endpoints/awsrulesfn/partitions.json.
func Partition(region string) string {
	for _, p := range [][2]string{
		{"cn-", "aws-cn"}, {"us-gov-", "aws-us-gov"}, {"eusc-", "aws-eusc"},
		{"us-iso-", "aws-iso"}, {"us-isob-", "aws-iso-b"}, {"eu-isoe-", "aws-iso-e"}, {"us-isof-", "aws-iso-f"}, {"eu-isof-", "aws-iso-f"},
	} {
		if strings.HasPrefix(region, p[0]) {
			return p[1]
		}
	}
	return "aws"
}
