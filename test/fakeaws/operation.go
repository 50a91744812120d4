package fakeaws

import (
	"context"
	"strings"
	"time"
)

// request is one call that has passed the checks that all operations share.
type request struct {
	Options
	in     params
	now    time.Time
	who    identity
	world  world // what it sees, and for a write what it leaves
	serial int   // unique
}

// operation is one action of an API: what it takes and what it does.
type operation struct {
	version string
	params  string // names; a ! marks those that must be there
	write   bool
	do      func(*request) (any, error)
	// slow operations ask others as well, and do not hold the account meanwhile.
	slow slowly
}

type slowly func(context.Context, *Server, params, time.Time) (any, error)

func (o operation) service() string {
	if o.version == stsVersion {
		return "sts"
	}
	return "iam"
}

// accepts says which parameters an operation takes and whether they must be there.
func (o operation) accepts() map[string]bool {
	m := map[string]bool{}
	for _, name := range strings.Fields(o.params) {
		m[strings.TrimSuffix(name, "!")] = strings.HasSuffix(name, "!")
	}
	return m
}

func read(params string, do func(*request) (any, error)) operation {
	return operation{version: iamVersion, params: params, do: do}
}

func write(params string, do func(*request) (any, error)) operation {
	return operation{version: iamVersion, params: params, do: do, write: true}
}

func slowWrite(params string, do slowly) operation {
	return operation{version: iamVersion, params: params, slow: do, write: true}
}

// operations are all actions that there are, as the models of botocore (iam/2010-05-08, sts/2011-06-15) describe them.
func operations() map[string]operation {
	const provider, page = "OpenIDConnectProviderArn!", " Marker MaxItems"
	return map[string]operation{
		"CreateOpenIDConnectProvider":             slowWrite("Url! ClientIDList ThumbprintList Tags", createProvider),
		"GetOpenIDConnectProvider":                read(provider, getProvider),
		"ListOpenIDConnectProviders":              read("", listProviders),
		"DeleteOpenIDConnectProvider":             slowWrite(provider, deleteProvider),
		"AddClientIDToOpenIDConnectProvider":      write(provider+" ClientID!", addClientID),
		"RemoveClientIDFromOpenIDConnectProvider": write(provider+" ClientID!", removeClientID),
		"UpdateOpenIDConnectProviderThumbprint":   write(provider+" ThumbprintList!", updateThumbprint),
		"TagOpenIDConnectProvider":                write(provider+" Tags!", tagProvider),
		"UntagOpenIDConnectProvider":              write(provider+" TagKeys!", untagProvider),

		"CreateRole": write("RoleName! AssumeRolePolicyDocument! Path Description MaxSessionDuration PermissionsBoundary Tags",
			createRole),
		"GetRole":                       read("RoleName!", getRole),
		"ListRoles":                     read(page, listRoles),
		"DeleteRole":                    write("RoleName!", deleteRole),
		"UpdateAssumeRolePolicy":        write("RoleName! PolicyDocument!", updateAssumeRolePolicy),
		"PutRolePermissionsBoundary":    write("RoleName! PermissionsBoundary!", putBoundary),
		"DeleteRolePermissionsBoundary": write("RoleName!", deleteBoundary),
		"TagRole":                       write("RoleName! Tags!", tagRole),
		"UntagRole":                     write("RoleName! TagKeys!", untagRole),

		"PutRolePolicy":            write("RoleName! PolicyName! PolicyDocument!", putRolePolicy),
		"GetRolePolicy":            read("RoleName! PolicyName!", getRolePolicy),
		"ListRolePolicies":         read("RoleName!"+page, listRolePolicies),
		"DeleteRolePolicy":         write("RoleName! PolicyName!", deleteRolePolicy),
		"AttachRolePolicy":         write("RoleName! PolicyArn!", attachRolePolicy),
		"DetachRolePolicy":         write("RoleName! PolicyArn!", detachRolePolicy),
		"ListAttachedRolePolicies": read("RoleName!"+page, listAttachedRolePolicies),

		"AddRoleToInstanceProfile": write("InstanceProfileName! RoleName!", addRoleToProfile),

		"GetCallerIdentity": {version: stsVersion, do: getCallerIdentity},
		"AssumeRoleWithWebIdentity": {version: stsVersion, slow: assumeRole,
			params: "RoleArn! RoleSessionName! WebIdentityToken! DurationSeconds"},
	}
}
