package fakeaws

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// params are the parameters of a call, checked.
type params struct {
	text  map[string]string
	lists map[string][]string
	tags  map[string][]tag
}

func (p params) has(name string) bool { _, ok := p.text[name]; return ok }

// number is a parameter that readParams has found to be one, or or.
func (p params) number(name string, or int) int {
	n, err := strconv.Atoi(p.text[name])
	if err != nil {
		return or
	}
	return n
}

// rule is what AWS's model says of one parameter. Lengths are in characters, of each item in a list.
type rule struct {
	kind     kind
	min, max int
	pattern  string
	says     string // AWS's own sentence for the pattern; empty: the general one
}

type kind int

const (
	text kind = iota
	number
	list
	tags
)

const (
	nameLetters = `[\w+=,.@-]+`
	nameSays    = "It must contain only alphanumeric characters and/or the following: +=,.@_-"
	policyText  = `[\x09\x0A\x0D\x{0020}-\x{00FF}]+`
	policySays  = "It must contain only printable ASCII characters."
	tagLetters  = `[\pL\pZ\pN_.:/=+\-@]`
)

// rules are shared by all operations: a name means the same everywhere.
func rules() map[string]rule {
	return map[string]rule{
		"OpenIDConnectProviderArn": {min: 20, max: 2048},
		"Url":                      {min: 1, max: 255},
		"ClientIDList":             {kind: list, min: 1, max: 255},
		"ClientID":                 {min: 1, max: 255},
		"ThumbprintList":           {kind: list, min: 40, max: 40},
		"Tags":                     {kind: tags},
		"TagKeys":                  {kind: list, min: 1, max: 128, pattern: tagLetters + "+"},
		"Marker":                   {min: 1, max: 320},
		"MaxItems":                 {kind: number, min: 1, max: 1000},
		"Path":                     {min: 1, max: 512, pattern: `/|/[\x21-\x7E]+/`},
		"RoleName":                 {min: 1, max: 64, pattern: nameLetters, says: nameSays},
		"InstanceProfileName":      {min: 1, max: 128, pattern: nameLetters, says: nameSays},
		"PolicyName":               {min: 1, max: 128, pattern: nameLetters, says: nameSays},
		"AssumeRolePolicyDocument": {min: 1, max: 131072, pattern: policyText, says: policySays},
		"PolicyDocument":           {min: 1, max: 131072, pattern: policyText, says: policySays},
		"Description":              {max: 1000, pattern: `[\x09\x0A\x0D\x20-\x7E\x{00A1}-\x{00FF}]*`},
		"MaxSessionDuration":       {kind: number, min: 3600, max: 43200},
		"PermissionsBoundary":      {min: 20, max: 2048},
		"PolicyArn":                {min: 20, max: 2048},
		"RoleArn":                  {min: 20, max: 2048},
		"RoleSessionName":          {min: 2, max: 64, pattern: `[\w+=,.@-]*`},
		"WebIdentityToken":         {min: 4, max: 20000},
		"DurationSeconds":          {kind: number, min: 900, max: 43200},
	}
}

// readParams checks everything that can be checked without the account and lists all that is wrong in one failure, as
// AWS does. A parameter that the operation does not take is refused: AWS may ignore it, but it is a mistake.
func readParams(op operation, form url.Values) (params, error) {
	p := params{map[string]string{}, map[string][]string{}, map[string][]tag{}}
	accepted, table := op.accepts(), rules()
	var wrong []string
	given := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(form)) {
		name, _, _ := strings.Cut(key, ".")
		if _, ok := accepted[name]; ok {
			given[name] = true
		} else if name != "Action" && name != "Version" {
			wrong = append(wrong, fmt.Sprintf("Parameter '%s' is not one of the operation's", key))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(accepted)) {
		switch {
		case given[name]:
			wrong = append(wrong, p.read(name, table[name], form)...)
		case accepted[name]:
			wrong = append(wrong, fmt.Sprintf("Value null at '%s' failed to satisfy constraint: Member must not be null", member(name)))
		}
	}
	return p, complain(wrong)
}

func complain(wrong []string) error {
	switch {
	case len(wrong) == 0:
		return nil
	case len(wrong) == 1 && strings.HasPrefix(wrong[0], "The specified value"):
		return validation("%s", wrong[0])
	case len(wrong) == 1:
		return validation("1 validation error detected: %s", wrong[0])
	}
	return validation("%d validation errors detected: %s", len(wrong), strings.Join(wrong, "; "))
}

// member is a parameter's name as AWS's sentences write it.
func member(name string) string { return strings.ToLower(name[:1]) + name[1:] }

func (p params) read(name string, r rule, form url.Values) []string {
	switch r.kind {
	case list:
		p.lists[name] = items(form, name)
		var wrong []string
		for i, v := range p.lists[name] {
			wrong = append(wrong, r.check(fmt.Sprintf("%s.%d.member", member(name), i+1), v)...)
		}
		return wrong
	case tags:
		var wrong []string
		p.tags[name], wrong = readTags(form, name)
		return wrong
	default:
		p.text[name] = form.Get(name)
		return r.check(member(name), p.text[name])
	}
}

// items are the values of NAME.member.1, NAME.member.2 and so on. NAME= by itself is the empty list.
func items(form url.Values, name string) []string {
	out := []string{}
	for i := 1; ; i++ {
		key := fmt.Sprintf("%s.member.%d", name, i)
		if !form.Has(key) {
			return out
		}
		out = append(out, form.Get(key))
	}
}

func (r rule) check(where, value string) []string {
	violates := func(constraint string) []string {
		return []string{fmt.Sprintf("Value '%s' at '%s' failed to satisfy constraint: Member must %s", shorten(value), where, constraint)}
	}
	if r.kind == number {
		return r.checkNumber(value, violates)
	}
	switch n := utf8.RuneCountInString(value); {
	case n < r.min:
		return violates(fmt.Sprintf("have length greater than or equal to %d", r.min))
	case n > r.max:
		return violates(fmt.Sprintf("have length less than or equal to %d", r.max))
	case r.pattern == "" || regexp.MustCompile(`^(?:`+r.pattern+`)$`).MatchString(value):
		return nil
	case r.says != "":
		return []string{fmt.Sprintf("The specified value for %s is invalid. %s", where, r.says)}
	}
	return violates("satisfy regular expression pattern: " + r.pattern)
}

func (r rule) checkNumber(value string, violates func(string) []string) []string {
	n, err := strconv.Atoi(value)
	switch {
	case err != nil:
		return violates("be a number")
	case n < r.min:
		return violates(fmt.Sprintf("have value greater than or equal to %d", r.min))
	case n > r.max:
		return violates(fmt.Sprintf("have value less than or equal to %d", r.max))
	}
	return nil
}

// shorten keeps a wrong value from filling a screen, and control characters out of XML.
func shorten(value string) string {
	value = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, value)
	if r := []rune(value); len(r) > 300 {
		return string(r[:300]) + "…"
	}
	return value
}
