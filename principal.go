package millrace

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// How long names are at most, in bytes.
const (
	// MaxPrincipalName is of a user or group, without what says which of the two it is.
	MaxPrincipalName = 256
	// MaxPrincipal is of a principal, as grants and quotas name it: earlier releases read no
	// longer ones. A user whose name is longer with its kind is granted things by his groups.
	MaxPrincipal = 256
)

// What principals begin with.
const (
	UserPrefix  = "user:"
	GroupPrefix = "group:"
)

// ValidatePrincipalName checks the name of a user or group, wherever it comes from: tokens,
// certificates, settings, grants and quotas. It reads the same wherever it stands: no blanks
// at its ends, within it no other blank than the space, and nothing that cannot be seen.
func ValidatePrincipalName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the name is empty")
	case len(name) > MaxPrincipalName:
		return fmt.Errorf("the name %s has %d bytes; at most %d are allowed", clip(name), len(name), MaxPrincipalName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }):
		return fmt.Errorf("the name %s has characters that cannot be seen", clip(name))
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("the name %s has blanks at its ends", clip(name))
	}
	return nil
}

// ValidatePrincipal checks that a text is user:<subject> or group:<name>.
func ValidatePrincipal(principal string) error {
	name, ok := strings.CutPrefix(principal, UserPrefix)
	if !ok {
		name, ok = strings.CutPrefix(principal, GroupPrefix)
	}
	if !ok || name == "" {
		return fmt.Errorf("the principal %s is neither user:<subject> nor group:<name>", clip(principal))
	}
	if len(principal) > MaxPrincipal {
		return fmt.Errorf("the principal %s has %d bytes; at most %d are allowed", clip(principal), len(principal), MaxPrincipal)
	}
	if err := ValidatePrincipalName(name); err != nil {
		return fmt.Errorf("the principal %s: %w", clip(principal), err)
	}
	return nil
}
