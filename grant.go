package millrace

import (
	"fmt"
	"strings"
	"time"
)

// Verb is what may be done to an object.
type Verb uint8

// The verbs. Each includes VerbDescribe, and VerbAdmin all of them.
const (
	VerbDescribe Verb = iota + 1
	VerbRead
	VerbWrite
	VerbCreate
	VerbAlter
	VerbDrop
	VerbAdmin
)

var verbNames = [...]string{VerbDescribe: "describe", VerbRead: "read", VerbWrite: "write", VerbCreate: "create", VerbAlter: "alter", VerbDrop: "drop", VerbAdmin: "admin"}

// AllVerbs are the verbs, in order.
func AllVerbs() []Verb {
	return []Verb{VerbDescribe, VerbRead, VerbWrite, VerbCreate, VerbAlter, VerbDrop, VerbAdmin}
}

// String is the verb's word.
func (v Verb) String() string {
	if v == 0 || int(v) >= len(verbNames) {
		return fmt.Sprintf("verb(%d)", uint8(v))
	}
	return verbNames[v]
}

// ParseVerb reads the word of a verb.
func ParseVerb(s string) (Verb, error) {
	for _, v := range AllVerbs() {
		if verbNames[v] == s {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%s is not one of %s", clip(s), strings.Join(verbNames[VerbDescribe:], ", "))
}

// Verbs is a set of verbs.
type Verbs uint8

// VerbsOf is the set of some verbs.
func VerbsOf(verbs ...Verb) Verbs {
	var s Verbs
	for _, v := range verbs {
		s |= 1 << v
	}
	return s
}

// Has says whether the verb itself is in the set.
func (s Verbs) Has(v Verb) bool { return s&(1<<v) != 0 }

// List are the verbs of the set, in order.
func (s Verbs) List() []Verb {
	var out []Verb
	for _, v := range AllVerbs() {
		if s.Has(v) {
			out = append(out, v)
		}
	}
	return out
}

// GrantID numbers a grant; never reused.
type GrantID uint32

// Grant lets a principal do something. It is immutable.
type Grant struct {
	ID GrantID
	// Principal is user:<subject> or group:<name>.
	Principal string
	// Database and Table say on what: both zero on everything, Table zero on a database
	// and everything in it.
	Database DatabaseID
	Table    TableID
	Verbs    Verbs
	// Columns are those that may be read, rising; none: all. They go with VerbRead alone.
	Columns   []ColumnID
	CreatedAt time.Time
}
