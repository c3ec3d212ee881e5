package guard

import (
	"strconv"

	"github.com/millrace/millrace/catalog"
	"github.com/millrace/millrace/errs"
)

// pageOf is which page of a list by id is asked for: so many entries after an id.
func pageOf(limit int, token string) (most int, after uint64, err error) {
	if limit == 0 {
		limit = catalog.DefaultPage
	}
	if limit < 0 || limit > catalog.MaxPage {
		return 0, 0, errs.New(errs.InvalidValue, "limit is %d; it is 1 to %d", limit, catalog.MaxPage)
	}
	if token != "" {
		if after, err = strconv.ParseUint(token, 10, 32); err != nil {
			return 0, 0, errs.New(errs.InvalidValue, "page_token is not one that a list returned")
		}
	}
	return limit, after, nil
}
