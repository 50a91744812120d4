package verify

// awsCauses are what can be wrong with the IAM OIDC provider and the trust policy of a role.
func awsCauses() []Cause { return nil }
