package awsiam

// Permissions lists the IAM actions that this package calls, sorted: what the caller's policy has to allow.
// sts:GetCallerIdentity needs none. What a call with tags, a boundary or an attached policy needs besides is in: the
// action for tagging alone, that is; the two others have no action of their own.
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
