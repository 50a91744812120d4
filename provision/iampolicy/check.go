package iampolicy

import "fmt"

// rolePolicyLength is how many characters all inline policies of a role may have together. No quota raises it.
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
const rolePolicyLength = 10240

// CheckRolePolicy returns an error unless text is a policy that fits into a role. IAM itself refuses what its statements may not say.
func CheckRolePolicy(text string) error {
	d, err := Parse(text)
	if err != nil {
		return err
	}
	if _, err := d.Fit(rolePolicyLength); err != nil {
		return fmt.Errorf("the permissions policy %w, and no quota raises that: put a part into a managed policy", err)
	}
	return nil
}
