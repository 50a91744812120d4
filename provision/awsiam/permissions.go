package awsiam

// Permissions lists the IAM actions that this package calls, sorted: what the caller's policy has to allow.
func Permissions() []string { return nil }
