package millrace

import "fmt"

// Rule is what an operation wants of its caller: the word of a [Verb], which he needs on
// what it is done to, or one of the two below, of operations that are on no object.
type Rule string

const (
	// RuleNone is of what tells no more than every copy of the program does.
	RuleNone Rule = "none"
	// RuleKnown is of what everybody may do who says who he is.
	RuleKnown Rule = "known caller"
)

// RuleOf is the rule of what needs a verb.
func RuleOf(v Verb) Rule { return Rule(v.String()) }

// ParseRule reads a rule's words.
func ParseRule(s string) (Rule, error) {
	if r := Rule(s); r == RuleNone || r == RuleKnown {
		return r, nil
	}
	v, err := ParseVerb(s)
	if err != nil {
		return "", fmt.Errorf("%w, %s or %s", err, RuleNone, RuleKnown)
	}
	return RuleOf(v), nil
}

// Verb is the verb that is needed; false when none is.
func (r Rule) Verb() (Verb, bool) {
	v, err := ParseVerb(string(r))
	return v, err == nil
}
