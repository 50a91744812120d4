package fakeaws

import (
	"encoding/base64"
	"strings"
)

// pageEnd closes one page of a list. A marker tells a client nothing but where to go on.
type pageEnd struct {
	IsTruncated bool
	Marker      string `xml:",omitempty"`
}

// page cuts from a sorted list what the call asks for, and at most PageSize: AWS may give fewer than MaxItems and still
// have more (https://docs.aws.amazon.com/IAM/latest/APIReference/API_ListRoles.html).
func page[T any](q *request, sorted []T, key func(T) string) ([]T, pageEnd, error) {
	if q.in.has("Marker") {
		after, err := base64.RawURLEncoding.DecodeString(q.in.text["Marker"])
		if err != nil {
			return nil, pageEnd{}, validation("Invalid Marker.")
		}
		for len(sorted) > 0 && strings.Compare(key(sorted[0]), string(after)) <= 0 {
			sorted = sorted[1:]
		}
	}
	n := min(q.PageSize, q.in.number("MaxItems", q.PageSize))
	if len(sorted) <= n {
		return sorted, pageEnd{}, nil
	}
	marker := base64.RawURLEncoding.EncodeToString([]byte(key(sorted[n-1])))
	return sorted[:n], pageEnd{IsTruncated: true, Marker: marker}, nil
}
