package catalog

import (
	"encoding/base64"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Sizes of a page of a list.
const (
	DefaultPage = 1000
	MaxPage     = 10_000
)

// pageOf says which of n things, sorted by name, are on the page after token.
// A token is the last name of the page before, so a list that changes between two
// pages neither repeats a thing nor leaves one out that was there all the time.
func pageOf(n, limit int, token string, find func(string) (int, bool), name func(int) string) (from, to int, next string, err error) {
	if limit == 0 {
		limit = DefaultPage
	}
	if limit < 0 || limit > MaxPage {
		return 0, 0, "", errs.New(errs.InvalidValue, "limit is %d; it is 1 to %d", limit, MaxPage)
	}
	if token != "" {
		last, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || millrace.ValidateName("listed", string(last)) != nil {
			return 0, 0, "", errs.New(errs.InvalidValue, "page_token is not one that a list returned")
		}
		at, found := find(string(last))
		if from = at; found {
			from++
		}
	}
	to = min(n, from+limit)
	if to < n {
		next = PageToken(name(to - 1))
	}
	return from, to, next, nil
}

// PageToken is the token of the page after one whose last thing has a name.
func PageToken(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(name)) }
