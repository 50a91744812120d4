// Package strictjson decodes JSON that two readers cannot read differently.
package strictjson

import kjson "sigs.k8s.io/json"

// Decode decodes JSON. Names of members are case-sensitive, and a duplicate is an error: else two readers of one text
// may see two different keys in it (RFC 8725, section 2.4).
func Decode(data []byte, into any) error {
	again, err := kjson.UnmarshalStrict(data, into, kjson.DisallowDuplicateFields)
	if err != nil {
		return err
	}
	if len(again) > 0 {
		return again[0]
	}
	return nil
}
