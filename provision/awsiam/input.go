package awsiam

// CreateJSON is the AWS CLI's --cli-input-json for create-open-id-connect-provider (ccoctl's 04 file).
func (p Provider) CreateJSON() []byte { return nil }

// CreateJSON is the AWS CLI's --cli-input-json for create-role (ccoctl's 05 files).
func (r Role) CreateJSON(t Trust) []byte { return nil }

// PolicyJSON is the AWS CLI's --cli-input-json for put-role-policy (ccoctl's 06 files); nil without a policy.
func (r Role) PolicyJSON() []byte { return nil }
