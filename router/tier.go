package router

import (
	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Tier says where rows are read from.
type Tier uint8

// The tiers.
const (
	UnionTier Tier = 0 // history in the lake and what came since, as one table
	HotTier   Tier = 1 // logs and keyed state alone
	LakeTier  Tier = 2 // the newest snapshot of the lake alone
)

// suffixLake is the virtual suffix of a table's lake tier.
const suffixLake = "lake"

// tierOf is the tier that suffix and request agree on.
func tierOf(suffix string, req *ReadRequest) (Tier, error) {
	tier := UnionTier
	switch req.Tier {
	case "", "union":
	case "hot":
		tier = HotTier
	case "lake":
		tier = LakeTier
	default:
		return 0, errs.New(errs.InvalidValue, "tier %q is not one of union, hot, lake", clip(req.Tier))
	}
	if suffix == suffixLake {
		if req.Tier != "" && tier != LakeTier {
			return 0, errs.New(errs.InvalidValue, "the suffix asks for \"lake\", and the request for tier %q", req.Tier)
		}
		tier = LakeTier
	}
	return tier, nil
}

// checkTier refuses to read a lake that the table or the view does not have.
func checkTier(t *millrace.Table, tier Tier, view View) error {
	switch {
	case tier != LakeTier:
		return nil
	case t.Options.Lake == nil:
		return errs.New(errs.InvalidValue, "table %s is not in the lake: set its property table.datalake.enabled to true, or read another tier", t.Path)
	case view.ofLog():
		return errs.New(errs.InvalidValue, "the lake holds rows and no changes: read the changelog or binlog of table %s with tier union or hot", t.Path)
	}
	return nil
}
