package auth

import (
	"context"
	"slices"
	"time"

	millrace "github.com/millrace/millrace"
)

// Principal is who calls.
type Principal struct {
	// Name is user:<subject>, as grants name it.
	Name string
	// Groups are group:<name>, sorted.
	Groups []string
	// Expires is when what the caller showed is not good any more; zero: never.
	Expires time.Time

	all bool
}

var (
	// System is the service itself, who may do everything.
	System = &Principal{Name: "system", all: true}
	// Anyone is every caller while authentication is off, who may do everything.
	Anyone = &Principal{Name: "anonymous", all: true}
)

// NewPrincipal makes the principal of a subject that is a member of groups, until a time;
// zero: for ever. Groups that no grant and no quota can name are left out.
func NewPrincipal(subject string, groups []string, expires time.Time) *Principal {
	p := &Principal{Name: millrace.UserPrefix + subject, Expires: expires}
	for _, g := range groups {
		if g = millrace.GroupPrefix + g; millrace.ValidatePrincipal(g) == nil {
			p.Groups = append(p.Groups, g)
		}
	}
	slices.Sort(p.Groups)
	p.Groups = slices.Compact(p.Groups)
	return p
}

// IsName says whether a text can be the name of a subject or a group.
func IsName(s string) bool { return millrace.ValidatePrincipalName(s) == nil }

// MayAll says whether the principal needs no grants.
func (p *Principal) MayAll() bool { return p.all }

type principalKey struct{}

// With is ctx with its caller.
func With(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// Of is the caller of ctx; nil when nobody said who it is, who may do nothing.
func Of(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}

// Scope is who writes, as batches and idempotency keys are told apart by: "" where nobody
// is known by name, as while authentication is off.
func Scope(ctx context.Context) string {
	if p := Of(ctx); p != nil && !p.all {
		return p.Name
	}
	return ""
}
