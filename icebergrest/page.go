package icebergrest

import (
	"net/http"
	"strconv"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// MaxListed is the most names of a list that is not asked for by pages.
const MaxListed = 100_000

// page is what of a list is asked for.
type page struct {
	// whole lists have no pages: the client sent no pageToken, so it knows of none.
	whole bool
	token string
	size  int
}

// pageOf reads pageToken and pageSize.
func pageOf(r *http.Request) (page, error) {
	q := r.URL.Query()
	p := page{whole: !q.Has("pageToken"), token: q.Get("pageToken"), size: catalog.MaxPage}
	if s := q.Get("pageSize"); s != "" {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 1 {
			return p, errs.New(errs.InvalidValue, "pageSize %q is not a number from 1 on", clip(s))
		}
		p.size = min(int(n), catalog.MaxPage)
	}
	if p.whole {
		p.size = catalog.MaxPage
	}
	return p, nil
}

// list gathers a page. more takes what the catalog has after a token, and what of it
// is listed.
func (p page) list(what string, more func(limit int, token string) (names []any, next string, err error)) (names []any, next *string, err error) {
	names = []any{}
	for token := p.token; ; {
		found, after, err := more(p.size, token)
		if err != nil {
			return nil, nil, err
		}
		names = append(names, found...)
		switch {
		case after == "":
			return names, nil, nil
		case !p.whole && len(names) > 0: // a page may be short, but not empty
			return names, &after, nil
		case len(names) > MaxListed:
			return nil, nil, errs.New(errs.TooLarge, "there are more than %d %s: list them by pages, with pageToken", MaxListed, what)
		}
		token = after
	}
}
