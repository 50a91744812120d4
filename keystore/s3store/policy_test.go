package s3store

import (
	"encoding/json"

	"github.com/keypost/keypost/internal/awsconf"
)

type policy struct {
	Version   string
	Statement []statement
}

type statement struct {
	Sid       string
	Effect    string
	Action    []string
	Resource  string
	Condition map[string]map[string]string `json:",omitempty"`
}

// readerPolicy returns the IAM policy, as JSON, of a mirror, which reads the store that o describes and never writes it.
func readerPolicy(o Options) ([]byte, error) { return o.policy("s3:GetObject") }

// writerPolicy returns the IAM policy, as JSON, of who changes key sets: a reader that may put objects. It removes
// none; a bucket with versions keeps what was overwritten.
func writerPolicy(o Options) ([]byte, error) { return o.policy("s3:GetObject", "s3:PutObject") }

func (o Options) policy(actions ...string) ([]byte, error) {
	o, err := o.Checked()
	if err != nil {
		return nil, err
	}
	bucket := "arn:" + awsconf.Partition(o.Region) + ":s3:::" + o.Bucket
	list := statement{Sid: "ListKeySets", Effect: "Allow", Action: []string{"s3:ListBucket"}, Resource: bucket}
	objects := statement{Sid: "KeySets", Effect: "Allow", Action: actions, Resource: bucket + "/" + o.dir() + "*"}
	if o.Prefix != "" {
		list.limit("StringLike", "s3:prefix", o.dir()+"*")
	}
	p := policy{"2012-10-17", []statement{list, objects}}
	return json.MarshalIndent(p, "", "  ")
}

func (st *statement) limit(operator, key, value string) {
	if st.Condition == nil {
		st.Condition = map[string]map[string]string{}
	}
	st.Condition[operator] = map[string]string{key: value}
}
