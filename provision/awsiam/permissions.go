package awsiam

// Permissions lists the IAM actions that the caller's policy has to allow, sorted. Besides those that are called, making
// a thing with its tags takes the action that tags it; sts:GetCallerIdentity takes none.
func Permissions() []string {
	return []string{
		"iam:AddClientIDToOpenIDConnectProvider",
		"iam:AttachRolePolicy",
		"iam:CreateOpenIDConnectProvider",
		"iam:CreateRole",
		"iam:DeleteOpenIDConnectProvider",
		"iam:DeleteRole",
		"iam:DeleteRolePolicy",
		"iam:DetachRolePolicy",
		"iam:GetOpenIDConnectProvider",
		"iam:GetRole",
		"iam:GetRolePolicy",
		"iam:ListAttachedRolePolicies",
		"iam:ListInstanceProfilesForRole",
		"iam:ListOpenIDConnectProviderTags",
		"iam:ListOpenIDConnectProviders",
		"iam:ListRolePolicies",
		"iam:ListRoleTags",
		"iam:ListRoles",
		"iam:PutRolePermissionsBoundary",
		"iam:PutRolePolicy",
		"iam:RemoveClientIDFromOpenIDConnectProvider",
		"iam:TagOpenIDConnectProvider",
		"iam:TagRole",
		"iam:UntagOpenIDConnectProvider",
		"iam:UpdateAssumeRolePolicy",
		"iam:UpdateOpenIDConnectProviderThumbprint",
		"iam:UpdateRole",
	}
}
