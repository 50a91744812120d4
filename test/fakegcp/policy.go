package fakegcp

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/keypost/keypost/test/fakecloud"
)

// emptyEtag is what Google gives for a policy that nobody has written.
const emptyEtag = "ACAB"

// etag is a new one, in the look of Google's.
func (q *request) etag() string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, 7<<56|6<<48|uint64(q.serial))) //nolint:gosec // counts calls
}

// policyKey is whose policy a call is about: the project's, or an account's by its unique ID.
func (q *request) policyKey() (string, error) {
	if _, ok := q.vars["account"]; !ok {
		return "", nil
	}
	a, err := q.account()
	return a.UniqueID, err
}

// getPolicy is getIamPolicy. The version is asked for in the body of Resource Manager's call and in the query of IAM's.
func getPolicy(q *request) (any, error) {
	key, err := q.policyKey()
	if err != nil {
		return nil, err
	}
	var in struct {
		Options struct {
			Version int `json:"requestedPolicyVersion"`
		} `json:"options"`
	}
	if err := q.read(&in); err != nil {
		return nil, err
	}
	if v := q.query.Get("options.requestedPolicyVersion"); v != "" {
		if in.Options.Version, err = strconv.Atoi(v); err != nil {
			return nil, invalid("Invalid value at 'options.requested_policy_version': %q", v)
		}
	}
	return q.policy(key).seen(in.Options.Version), nil
}

func (q *request) policy(key string) Policy {
	p, ok := q.world.policies[key]
	if !ok {
		p = Policy{Version: 1, Etag: emptyEtag}
	}
	return p
}

// seen is a policy as a version shows it. Before version 3 a conditional binding has a made-up role and no condition
// (https://cloud.google.com/iam/docs/policies#versions).
func (p Policy) seen(version int) Policy {
	if version == 3 || p.Version < 3 {
		return p
	}
	p.Version, p.Bindings = 1, slices.Clone(p.Bindings)
	for i, b := range p.Bindings {
		if b.Condition == nil {
			continue
		}
		sum := sha256.Sum256([]byte(b.Condition.Title + b.Condition.Expression))
		p.Bindings[i] = Binding{Role: b.Role + "_withcond_" + hex.EncodeToString(sum[:10]), Members: b.Members}
	}
	return p
}

// setPolicy is setIamPolicy: without an etag it overwrites blindly, conditions and all.
func setPolicy(q *request) (any, error) {
	key, err := q.policyKey()
	if err != nil {
		return nil, err
	}
	var in struct {
		Policy Policy `json:"policy"`
		Mask   string `json:"updateMask"`
	}
	if err := q.read(&in); err != nil {
		return nil, err
	}
	old, p := q.policy(key), in.Policy
	if p.Etag != "" {
		if p.Etag != old.Etag {
			return nil, concurrent()
		}
		if old.Version == 3 && p.Version < 3 {
			return nil, invalid("Specified policy version (%d) cannot be less than the existing policy version (3). "+
				"For more information, please refer to https://cloud.google.com/iam/docs/policies#versions.", p.Version)
		}
	}
	if err := q.checkBindings(p, old); err != nil {
		return nil, err
	}
	p.Bindings = merged(p.Bindings)
	p.Version = 1
	if slices.ContainsFunc(p.Bindings, func(b Binding) bool { return b.Condition != nil }) {
		p.Version = 3
	}
	if p.Audit == nil {
		p.Audit = old.Audit
	}
	p.Etag = q.etag()
	q.world.policies = fakecloud.With(q.world.policies, key, p)
	return p, nil
}

func (q *request) checkBindings(p, old Policy) error {
	for _, b := range p.Bindings {
		if b.Condition != nil && p.Version != 3 {
			return invalid("The policy has conditions and must specify version 3.")
		}
		if err := q.checkRole(b, old); err != nil {
			return err
		}
		for _, m := range b.Members {
			if err := q.checkMember(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkRole lets a deleted role stay where it is bound already.
func (q *request) checkRole(b Binding, old Policy) error {
	if regexp.MustCompile(`^roles/[A-Za-z0-9_.]+$`).MatchString(b.Role) && !strings.Contains(b.Role, "_withcond_") {
		return nil
	}
	id, own := strings.CutPrefix(b.Role, "projects/"+q.Project+"/roles/")
	r, found := q.world.roles[id]
	if own && found && (!r.Deleted || slices.ContainsFunc(old.Bindings, func(o Binding) bool { return o.Role == b.Role })) {
		return nil
	}
	return invalid("Role (%s) does not exist in the resource's hierarchy.", b.Role)
}

const principalPattern = `^principal(?:Set)?://iam\.googleapis\.com/(projects/\d+/locations/global/workloadIdentityPools/)([a-z0-9-]+)/` +
	`(?:subject/.+|\*|group/.+|attribute\.[a-z0-9_]+/.+)$`

// checkPrincipal refuses the subjects of a pool of the project that is not there, or not known yet.
func (q *request) checkPrincipal(m string) error {
	parts := regexp.MustCompile(principalPattern).FindStringSubmatch(m)
	if parts == nil || strings.HasPrefix(m, "principal://") != strings.Contains(m, "/subject/") {
		return invalid("Invalid principal %s.", m)
	}
	p, found := q.world.pools[parts[2]]
	if parts[1] == q.poolName("") && (!found || q.now.Before(p.Created.Add(q.PoolDelay))) {
		return invalid("Identity Pool does not exist (%s%s). Please check that you specified a valid resource name as returned in the `name` "+
			"attribute in the configuration API.", parts[1], parts[2])
	}
	return nil
}

func (q *request) checkMember(m string) error {
	kind, name, _ := strings.Cut(m, ":")
	switch kind {
	case "allUsers", "allAuthenticatedUsers", "user", "group", "domain", "deleted":
		return nil
	case "principal", "principalSet":
		return q.checkPrincipal(m)
	case "serviceAccount":
		if !strings.HasSuffix(name, q.email("")) {
			return nil
		}
		for _, a := range q.world.accounts {
			if a.Email == name && a.Deleted == nil && q.sees(a) {
				return nil
			}
		}
		return invalid("Service account %s does not exist.", name)
	}
	return invalid("The member %s is of an unknown type. Please set a valid type prefix for the member.", m)
}

// merged puts the bindings of one role under one condition together, as Google does, in the order of their roles.
func merged(bindings []Binding) []Binding {
	var l []Binding
	key := func(b Binding) string {
		c, err := json.Marshal(b.Condition)
		if err != nil {
			return b.Role
		}
		return b.Role + "\x00" + string(c)
	}
	for _, b := range bindings {
		i := slices.IndexFunc(l, func(o Binding) bool { return key(o) == key(b) })
		if i < 0 {
			l, i = append(l, Binding{Role: b.Role, Condition: b.Condition}), len(l)
		}
		for _, m := range b.Members {
			if !slices.Contains(l[i].Members, m) {
				l[i].Members = append(l[i].Members, m)
			}
		}
	}
	l = slices.DeleteFunc(l, func(b Binding) bool { return len(b.Members) == 0 })
	slices.SortStableFunc(l, func(a, b Binding) int { return cmp.Compare(a.Role, b.Role) })
	return l
}

// getProject is Resource Manager's projects.get, version 1.
func getProject(q *request) (any, error) {
	return map[string]any{"projectNumber": q.Number, "projectId": q.Project, "lifecycleState": active, "name": q.Project,
		"createTime": "2026-01-01T00:00:00.000Z"}, nil
}
