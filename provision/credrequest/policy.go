package credrequest

import "encoding/json"

// Policy renders statements as the permissions policy of a role, byte for byte as ccoctl does: compact, conditions
// sorted, <, > and & escaped. It fails only on a condition value that JSON has no form for.
//
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html
func Policy(statements []Statement) ([]byte, error) {
	if statements == nil {
		statements = []Statement{}
	}
	return json.Marshal(struct {
		Version   string
		Statement []Statement
	}{"2012-10-17", statements})
}
