// Package cel reads the part of the Common Expression Language that attribute mappings and conditions of workload identity
// providers are written in (https://cloud.google.com/iam/docs/workload-identity-federation#mapping): literals, lists,
// members, the operators of logic, comparison and sum, "in", "?:", has and a few methods of text. Anything else does not
// compile, so that a test that goes beyond it finds out at once.
package cel

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Expression is a compiled one. It is given the values of assertion, google and attribute: what encoding/json makes of JSON.
// It gives such a value, too, or an error.
type Expression func(env map[string]any) (any, error)

// Evaluate compiles and runs an expression.
func Evaluate(text string, env map[string]any) (any, error) {
	e, err := Compile(text)
	if err != nil {
		return nil, err
	}
	return e(env)
}

// compiler reads one expression.
type compiler struct {
	words []string
	at    int
}

const wordPattern = `^\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[0-9]+|[A-Za-z_][A-Za-z0-9_]*|==|!=|<=|>=|&&|\|\||[-+!<>()\[\].,?:])`

// Compile reads an expression.
func Compile(text string) (Expression, error) {
	c := &compiler{}
	word := regexp.MustCompile(wordPattern)
	for strings.TrimSpace(text) != "" {
		m := word.FindStringSubmatch(text)
		if m == nil {
			return nil, fmt.Errorf("cannot read %q", text)
		}
		c.words, text = append(c.words, m[1]), text[len(m[0]):]
	}
	e, err := c.choice()
	if err == nil && c.at < len(c.words) {
		err = fmt.Errorf("%q is too much", c.words[c.at])
	}
	return e, err
}

func (c *compiler) next() string {
	if c.at < len(c.words) {
		return c.words[c.at]
	}
	return ""
}

func (c *compiler) take(word string) bool {
	if c.next() != word || word == "" {
		return false
	}
	c.at++
	return true
}

func (c *compiler) want(word string) error {
	if !c.take(word) {
		return fmt.Errorf("%q is missing", word)
	}
	return nil
}

func (c *compiler) choice() (Expression, error) {
	test, err := c.binary(0)
	if err != nil || !c.take("?") {
		return test, err
	}
	yes, err := c.choice()
	if err != nil {
		return nil, err
	}
	if err := c.want(":"); err != nil {
		return nil, err
	}
	no, err := c.choice()
	return func(env map[string]any) (any, error) {
		v, err := test(env)
		if err != nil {
			return nil, err
		}
		if v == true {
			return yes(env)
		}
		return no(env)
	}, err
}

// levels are the operators, those that bind least first.
func levels() [][]string {
	return [][]string{{"||"}, {"&&"}, {"==", "!=", "<", "<=", ">", ">=", "in"}, {"+"}}
}

func (c *compiler) binary(level int) (Expression, error) {
	if level == len(levels()) {
		return c.unary()
	}
	left, err := c.binary(level + 1)
	for err == nil && slices.Contains(levels()[level], c.next()) {
		op := c.next()
		c.at++
		var right Expression
		if right, err = c.binary(level + 1); err == nil {
			left = joined(op, left, right)
		}
	}
	return left, err
}

// joined joins two expressions. The operators of logic pass over an error of one side when the other decides.
func joined(op string, left, right Expression) Expression {
	return func(env map[string]any) (any, error) {
		a, errA := left(env)
		b, errB := right(env)
		if decides := op == "||"; op == "||" || op == "&&" {
			if errA == nil && a == decides || errB == nil && b == decides {
				return decides, nil
			}
			return !decides, errors.Join(errA, errB)
		}
		if err := errors.Join(errA, errB); err != nil {
			return nil, err
		}
		return compare(op, a, b)
	}
}

func compare(op string, a, b any) (any, error) {
	switch op {
	case "==":
		return reflect.DeepEqual(a, b), nil
	case "!=":
		return !reflect.DeepEqual(a, b), nil
	case "in":
		if m, ok := b.(map[string]any); ok {
			_, found := m[fmt.Sprint(a)]
			return found, nil
		}
		l, ok := b.([]any)
		for _, v := range l {
			if reflect.DeepEqual(a, v) {
				return true, nil
			}
		}
		if !ok {
			return nil, errors.New("in needs a list or a map")
		}
		return false, nil
	}
	if s, ok := a.(string); ok {
		if t, ok := b.(string); ok {
			if op == "+" {
				return s + t, nil
			}
			return order(op, strings.Compare(s, t)), nil
		}
	}
	x, okX := a.(float64)
	y, okY := b.(float64)
	if !okX || !okY {
		return nil, fmt.Errorf("%s does not fit %T and %T", op, a, b)
	}
	if op == "+" {
		return x + y, nil
	}
	sign := 0
	if x < y {
		sign = -1
	} else if x > y {
		sign = 1
	}
	return order(op, sign), nil
}

func order(op string, sign int) bool {
	switch op {
	case "<":
		return sign < 0
	case "<=":
		return sign <= 0
	case ">":
		return sign > 0
	}
	return sign >= 0
}

func (c *compiler) unary() (Expression, error) {
	if !c.take("!") {
		return c.member()
	}
	e, err := c.unary()
	return func(env map[string]any) (any, error) {
		v, err := e(env)
		b, ok := v.(bool)
		if err == nil && !ok {
			err = errors.New("! needs a bool")
		}
		return !b, err
	}, err
}

// member reads what may have members, indexes and methods behind it.
func (c *compiler) member() (Expression, error) {
	e, err := c.primary()
	for err == nil {
		switch {
		case c.take("."):
			name := c.next()
			c.at++
			if !regexp.MustCompile(`^[A-Za-z_]`).MatchString(name) {
				return nil, fmt.Errorf("%q is no name of a member", name)
			}
			if !c.take("(") {
				e = pick(e, func(map[string]any) (any, error) { return name, nil })
				continue
			}
			var arguments []Expression
			if arguments, err = c.list(")"); err == nil {
				e, err = call(name, e, arguments)
			}
		case c.take("["):
			var index Expression
			if index, err = c.choice(); err == nil {
				e, err = pick(e, index), c.want("]")
			}
		default:
			return e, nil
		}
	}
	return nil, err
}

func (c *compiler) list(end string) ([]Expression, error) {
	var l []Expression
	for !c.take(end) {
		if len(l) > 0 {
			if err := c.want(","); err != nil {
				return nil, err
			}
		}
		e, err := c.choice()
		if err != nil {
			return nil, err
		}
		l = append(l, e)
	}
	return l, nil
}

func (c *compiler) primary() (Expression, error) {
	word := c.next()
	c.at++
	constant := func(v any) (Expression, error) {
		return func(map[string]any) (any, error) { return v, nil }, nil
	}
	switch {
	case word == "":
		return nil, errors.New("the expression ends too early")
	case word == "(":
		e, err := c.choice()
		if err == nil {
			err = c.want(")")
		}
		return e, err
	case word == "[":
		items, err := c.list("]")
		return func(env map[string]any) (any, error) { return values(items, env) }, err
	case word == "true" || word == "false":
		return constant(word == "true")
	case word[0] == '"' || word[0] == '\'':
		return constant(regexp.MustCompile(`\\(.)`).ReplaceAllString(word[1:len(word)-1], "$1"))
	case word[0] >= '0' && word[0] <= '9':
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return nil, err
		}
		return constant(n)
	case word == "assertion" || word == "google" || word == "attribute":
		return func(env map[string]any) (any, error) { return env[word], nil }, nil
	case word == "has" && c.take("("):
		e, err := c.list(")")
		if err != nil || len(e) != 1 {
			return nil, errors.New("has takes one member")
		}
		return func(env map[string]any) (any, error) { _, err := e[0](env); return err == nil, nil }, nil
	}
	return nil, fmt.Errorf("undeclared reference to %q", word)
}

func values(items []Expression, env map[string]any) ([]any, error) {
	l := []any{}
	for _, item := range items {
		v, err := item(env)
		if err != nil {
			return nil, err
		}
		l = append(l, v)
	}
	return l, nil
}

// pick is a member of a map, or an element of a list.
func pick(of, index Expression) Expression {
	return func(env map[string]any) (any, error) {
		v, err := of(env)
		if err != nil {
			return nil, err
		}
		i, err := index(env)
		if err != nil {
			return nil, err
		}
		switch v := v.(type) {
		case map[string]any:
			if name, ok := i.(string); ok {
				if m, found := v[name]; found {
					return m, nil
				}
			}
		case []any:
			if n, ok := i.(float64); ok && n >= 0 && int(n) < len(v) {
				return v[int(n)], nil
			}
		}
		return nil, fmt.Errorf("no such key: %v", i)
	}
}

// call is a method of text or of a list.
func call(name string, of Expression, arguments []Expression) (Expression, error) {
	takes, known := map[string]int{"startsWith": 1, "endsWith": 1, "contains": 1, "matches": 1, "extract": 1, "size": 0, "lowerAscii": 0, "upperAscii": 0}[name]
	if !known || len(arguments) != takes {
		return nil, fmt.Errorf("method %s of %d arguments", name, len(arguments))
	}
	return func(env map[string]any) (any, error) {
		v, err := of(env)
		if err != nil {
			return nil, err
		}
		given, err := values(arguments, env)
		if err != nil {
			return nil, err
		}
		if l, ok := v.([]any); ok && name == "size" {
			return float64(len(l)), nil
		}
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%s needs text", name)
		}
		argument := ""
		if takes == 1 {
			if argument, ok = given[0].(string); !ok {
				return nil, fmt.Errorf("%s takes text", name)
			}
		}
		return method(name, s, argument)
	}, nil
}

func method(name, s, argument string) (any, error) {
	switch name {
	case "startsWith":
		return strings.HasPrefix(s, argument), nil
	case "endsWith":
		return strings.HasSuffix(s, argument), nil
	case "contains":
		return strings.Contains(s, argument), nil
	case "matches":
		return regexp.MatchString(argument, s)
	case "extract":
		return extract(s, argument)
	case "lowerAscii":
		return strings.ToLower(s), nil
	case "upperAscii":
		return strings.ToUpper(s), nil
	}
	return float64(len([]rune(s))), nil
}

// extract takes out what stands where a template has its name in braces
// (https://cloud.google.com/iam/docs/conditions-attribute-reference#extract).
func extract(s, template string) (any, error) {
	m := regexp.MustCompile(`^([^{}]*)\{[^{}]+\}([^{}]*)$`).FindStringSubmatch(template)
	if m == nil {
		return nil, fmt.Errorf("%q is no template", template)
	}
	i := strings.Index(s, m[1])
	if i < 0 {
		return "", nil
	}
	s = s[i+len(m[1]):]
	if m[2] == "" {
		return s, nil
	}
	if i = strings.Index(s, m[2]); i < 0 {
		return "", nil
	}
	return s[:i], nil
}
