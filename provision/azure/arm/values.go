package arm

import "regexp"

var guidForm = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

// IsGUID reports whether s has the form of the IDs of subscriptions, tenants, clients and principals.
func IsGUID(s string) bool { return guidForm.MatchString(s) }

// Deref returns what a pointer of the SDK's points to.
func Deref[T any](p *T) T {
	var none T
	if p == nil {
		return none
	}
	return *p
}

// Values returns what pointers of the SDK's point to.
func Values(list []*string) []string {
	var out []string
	for _, p := range list {
		out = append(out, Deref(p))
	}
	return out
}

// Tags returns tags as the SDK has them.
func Tags(tags map[string]*string) map[string]string {
	out := map[string]string{}
	for k, v := range tags {
		out[k] = Deref(v)
	}
	return out
}

// Pointers returns tags as the SDK takes them.
func Pointers(tags map[string]string) map[string]*string {
	out := map[string]*string{}
	for k, v := range tags {
		out[k] = &v
	}
	return out
}
