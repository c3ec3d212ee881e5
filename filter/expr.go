package filter

// The expression of a filter, as written: names are not looked up and literals
// have no column yet. Each node knows the byte of the text where it begins, for
// messages.

type expr interface{ at() int }

// operand is an expression that has a value: what can be compared. As a
// condition of its own it must be boolean.
type operand interface {
	expr
	operand()
}

type pos int

func (p pos) at() int { return int(p) }

// logic is a chain of AND, or of OR; chains are flat however long they are.
type logic struct {
	pos
	or   bool
	args []expr
}

type negation struct {
	pos
	arg expr
}

type comparison struct {
	pos
	op          compareOp
	left, right operand
}

// membership is left [NOT] IN (list).
type membership struct {
	pos
	not  bool
	left operand
	list []operand
}

// between is left [NOT] BETWEEN low AND high.
type between struct {
	pos
	not       bool
	left      operand
	low, high operand
}

// like is left [NOT] LIKE pattern [ESCAPE escape]; escape may be nil.
type like struct {
	pos
	not             bool
	left            operand
	pattern, escape operand
}

// nullTest is left IS [NOT] NULL.
type nullTest struct {
	pos
	not  bool
	left operand
}

type columnRef struct {
	pos
	name   string
	quoted byte // the quote it was written with, or 0
}

type literal struct {
	pos
	end   int // where it ends in the text, in bytes
	value value
}

// parameter is the n-th question mark, from 0.
type parameter struct {
	pos
	n int
}

// currentTime is CURRENT_TIMESTAMP and the intervals added to it.
type currentTime struct {
	pos
	shifts []interval
}

func (columnRef) operand()   {}
func (literal) operand()     {}
func (parameter) operand()   {}
func (currentTime) operand() {}

// compareOp is a comparison as a set of outcomes, so that negating it and
// turning it round are set operations.
type compareOp uint8

const (
	opLess    compareOp = 1
	opEqual   compareOp = 2
	opGreater compareOp = 4

	opNotEqual     = opLess | opGreater
	opLessEqual    = opLess | opEqual
	opGreaterEqual = opGreater | opEqual
	opAny          = opLess | opEqual | opGreater
)

// not is the operator that is TRUE where op is FALSE.
func (op compareOp) not() compareOp { return opAny &^ op }

// flip is the operator with its sides exchanged.
func (op compareOp) flip() compareOp {
	f := op & opEqual
	if op&opLess != 0 {
		f |= opGreater
	}
	if op&opGreater != 0 {
		f |= opLess
	}
	return f
}

// holds says whether op is TRUE for two values that compare as c.
func (op compareOp) holds(c int) bool { return op>>(c+1)&1 != 0 }

var compareOps = map[string]compareOp{
	"=": opEqual, "!=": opNotEqual, "<>": opNotEqual,
	"<": opLess, "<=": opLessEqual, ">": opGreater, ">=": opGreaterEqual,
}
