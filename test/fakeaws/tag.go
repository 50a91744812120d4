package fakeaws

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// tagLimit is how many tags a role or provider may carry (IAM quotas).
const tagLimit = 50

type tag struct {
	Key   string
	Value string
}

func readTags(form url.Values, name string) (out []tag, wrong []string) {
	key := rule{min: 1, max: 128, pattern: tagLetters + "+"}
	value := rule{max: 256, pattern: tagLetters + "*"}
	for i := 1; ; i++ {
		at := fmt.Sprintf("%s.member.%d.", name, i)
		if !form.Has(at+"Key") && !form.Has(at+"Value") {
			break
		}
		t := tag{form.Get(at + "Key"), form.Get(at + "Value")}
		where := fmt.Sprintf("%s.%d.member.", member(name), i)
		wrong = append(wrong, key.check(where+"key", t.Key)...)
		wrong = append(wrong, value.check(where+"value", t.Value)...)
		out = append(out, t)
	}
	if len(out) > tagLimit {
		wrong = append(wrong, fmt.Sprintf("Value at '%s' failed to satisfy constraint: Member must have length less than or equal to %d",
			member(name), tagLimit))
	}
	return out, wrong
}

// addTags puts tags on what has old. Keys are one key whatever their case, and keep the case in which they came last
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/id_tags.html).
func addTags(old map[string]string, more []tag, quota string) (map[string]string, error) {
	seen := map[string]bool{}
	result := maps.Clone(old)
	if result == nil {
		result = map[string]string{}
	}
	for _, t := range more {
		lower := strings.ToLower(t.Key)
		if seen[lower] {
			return nil, invalidInput("Duplicate tag keys found. Please note that Tag keys are case insensitive.")
		}
		if strings.HasPrefix(lower, "aws:") {
			return nil, invalidInput("Caller is not an AWS service: tag keys that begin with aws: are reserved.")
		}
		seen[lower] = true
		maps.DeleteFunc(result, func(k, _ string) bool { return strings.EqualFold(k, t.Key) })
		result[t.Key] = t.Value
	}
	if len(result) > tagLimit {
		return nil, limitExceeded(quota, tagLimit)
	}
	return result, nil
}

func dropTags(old map[string]string, keys []string) map[string]string {
	result := maps.Clone(old)
	maps.DeleteFunc(result, func(k, _ string) bool {
		return slices.ContainsFunc(keys, func(x string) bool { return strings.EqualFold(k, x) })
	})
	return result
}

func tagList(m map[string]string) members[tag] {
	var out members[tag]
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out.Items = append(out.Items, tag{k, m[k]})
	}
	return out
}
