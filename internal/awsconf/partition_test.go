package awsconf

import "testing"

func TestPartition(t *testing.T) {
	for region, want := range map[string]string{
		"us-east-1": "aws", "eu-central-1": "aws", "mx-central-1": "aws", "": "aws", "nowhere-1": "aws",
		"us-gov-west-1": "aws-us-gov", "cn-north-1": "aws-cn", "eusc-de-east-1": "aws-eusc",
		"us-iso-east-1": "aws-iso", "us-isob-east-1": "aws-iso-b", "eu-isoe-west-1": "aws-iso-e", "us-isof-south-1": "aws-iso-f",
	} {
		if got := Partition(region); got != want {
			t.Errorf("Partition(%q) = %s, want %s", region, got, want)
		}
	}
}
