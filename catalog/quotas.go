package catalog

import (
	"cmp"
	"context"
	"errors"
	"slices"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// MaxQuotas is how many quotas there may be.
const MaxQuotas = 10_000

// errQuotaIs ends a change that finds the quotas as they are to be.
var errQuotaIs = errors.New("the quota is so already")

// SetQuota makes the quota of a principal, or replaces the one it has.
func (c *Catalog) SetQuota(ctx context.Context, principal string, l millrace.Limits) (*millrace.Quota, error) {
	return c.SetQuotaIf(ctx, principal, l, nil)
}

// SetQuotaIf is SetQuota if a function lets the quota of the principal be set when it is.
func (c *Catalog) SetQuotaIf(ctx context.Context, principal string, l millrace.Limits, may func(string) error) (*millrace.Quota, error) {
	if err := checkQuota(principal, l); err != nil {
		return nil, err
	}
	var made *millrace.Quota
	err := c.commit(ctx, func(s *snapshot) ([]Write, error) {
		if err := permitted(may, principal); err != nil {
			return nil, err
		}
		next := &millrace.Quota{Principal: principal, Limits: l}
		switch was := s.quotaOf[principal]; {
		case was != nil && was.Limits == l:
			made = was
			return nil, errQuotaIs
		case was != nil:
			next.ID = was.ID
		case len(s.quotas) >= MaxQuotas:
			return nil, errs.New(errs.TooLarge, "there are %d quotas, the most there may be; give them to groups, or set the one of %q", len(s.quotas), millrace.DefaultPrincipal)
		default:
			next.ID = max(s.head.NextQuota, 1)
			s.head.NextQuota = next.ID + 1
		}
		s.head.FeatureLevel = max(s.head.FeatureLevel, FeatureQuotas)
		made = next
		if err := s.putQuota(next); err != nil {
			return nil, err
		}
		return []Write{{Key: quotaKey(next.ID), Value: encodeRecord(recordOfQuota(next))}}, nil
	})
	if err != nil && !errors.Is(err, errQuotaIs) {
		return nil, err
	}
	return made, nil
}

// CheckQuotaName refuses what no quota is of, also none of an earlier release, which took
// names that are refused now: those can be shown and taken away.
func CheckQuotaName(name string) error {
	if name != millrace.DefaultPrincipal && !keptPrincipal(name) {
		return checkPrincipal(name)
	}
	return nil
}

// checkQuota refuses a quota that makes no sense.
func checkQuota(principal string, limits millrace.Limits) error {
	if principal != millrace.DefaultPrincipal {
		if err := checkPrincipal(principal); err != nil {
			return err
		}
	}
	return checkLimits(limits)
}

func checkLimits(limits millrace.Limits) error {
	for _, l := range []struct {
		field string
		value int64
	}{
		{"write_rows_per_s", limits.WriteRows},
		{"write_bytes_per_s", limits.WriteBytes},
		{"read_bytes_per_s", limits.ReadBytes},
		{"streams", limits.Streams},
	} {
		if l.value < 0 {
			return field(errs.InvalidValue, l.field, "%s is %d; it is a positive number, or 0 for no limit", l.field, l.value)
		}
	}
	return nil
}

// Quotas are all quotas, by id. The slice is not to be changed.
func (c *Catalog) Quotas() []*millrace.Quota { return c.current.Load().quotas }

// Quota is the quota of a name, which is a principal's or millrace.DefaultPrincipal; nil
// when it has none. It takes no lock.
func (c *Catalog) Quota(name string) *millrace.Quota { return c.current.Load().quotaOf[name] }

// DeleteQuota takes a quota away, and returns it; nil when there is none.
func (c *Catalog) DeleteQuota(ctx context.Context, principal string) (*millrace.Quota, error) {
	return c.DeleteQuotaIf(ctx, principal, nil)
}

// DeleteQuotaIf is DeleteQuota if a function lets the quota of the principal be taken away
// when it is.
func (c *Catalog) DeleteQuotaIf(ctx context.Context, principal string, may func(string) error) (*millrace.Quota, error) {
	var gone *millrace.Quota
	err := c.commit(ctx, func(s *snapshot) ([]Write, error) {
		if err := permitted(may, principal); err != nil {
			return nil, err
		}
		if gone = s.quotaOf[principal]; gone == nil {
			return nil, errQuotaIs
		}
		s.dropQuota(gone.ID)
		return []Write{{Key: quotaKey(gone.ID)}}, nil
	})
	if errors.Is(err, errQuotaIs) {
		return nil, nil
	}
	return gone, err
}

func (s *snapshot) findQuota(id millrace.QuotaID) (int, bool) {
	return slices.BinarySearchFunc(s.quotas, id, func(q *millrace.Quota, id millrace.QuotaID) int { return cmp.Compare(q.ID, id) })
}

// putQuota takes over a quota that is new or has other limits. REQUIRES: s came from edit.
func (s *snapshot) putQuota(q *millrace.Quota) error {
	if other := s.quotaOf[q.Principal]; other != nil && other.ID != q.ID {
		return corrupt("quotas %d and %d are both of %s", other.ID, q.ID, clip(q.Principal))
	}
	i, there := s.findQuota(q.ID)
	switch {
	case there && s.quotas[i].Principal != q.Principal:
		return corrupt("quota %d was of %s and is of %s", q.ID, clip(s.quotas[i].Principal), clip(q.Principal))
	case there:
		s.quotas = slices.Clone(s.quotas)
		s.quotas[i] = q
	default:
		s.quotas = slices.Insert(slices.Clip(s.quotas), i, q)
	}
	s.quotaOf = with(s.quotaOf, q.Principal, q)
	return nil
}

// dropQuota removes a quota, if it is there. REQUIRES: s came from edit.
func (s *snapshot) dropQuota(id millrace.QuotaID) {
	if i, there := s.findQuota(id); there {
		s.quotaOf = without(s.quotaOf, s.quotas[i].Principal)
		s.quotas = slices.Delete(slices.Clone(s.quotas), i, i+1)
	}
}

func recordOfQuota(q *millrace.Quota) quotaRecord {
	return quotaRecord{
		ID: q.ID, Principal: q.Principal, WriteRows: q.Limits.WriteRows, WriteBytes: q.Limits.WriteBytes,
		ReadBytes: q.Limits.ReadBytes, Streams: q.Limits.Streams,
	}
}

// decodeQuota is the quota of an entry. REQUIRES: the head is that of the entry's commit.
func (s *snapshot) decodeQuota(e Entry) (*millrace.Quota, error) {
	var r quotaRecord
	if err := decodeRecord(e, &r); err != nil {
		return nil, err
	}
	q := &millrace.Quota{ID: r.ID, Principal: r.Principal, Limits: millrace.Limits{
		WriteRows: r.WriteRows, WriteBytes: r.WriteBytes, ReadBytes: r.ReadBytes, Streams: r.Streams,
	}}
	if quotaKey(r.ID) != e.Key || r.ID == 0 || r.ID >= s.head.NextQuota ||
		CheckQuotaName(q.Principal) != nil || checkLimits(q.Limits) != nil {
		return nil, corrupt("key %q holds quota %d, of %s", e.Key, r.ID, clip(r.Principal))
	}
	return q, nil
}

// quota takes over a quota that another process set.
func (a *applier) quota(e Entry) error {
	q, err := a.decodeQuota(e)
	if err != nil {
		return err
	}
	return a.putQuota(q)
}

// quota takes a quota of the store.
func (l *loader) quota(e Entry) error {
	q, err := l.snapshot.decodeQuota(e)
	if err != nil {
		return err
	}
	if l.snapshot.quotaOf[q.Principal] != nil {
		return corrupt("two quotas are of %s", clip(q.Principal))
	}
	l.snapshot.quotas = append(l.snapshot.quotas, q)
	l.snapshot.quotaOf[q.Principal] = q
	return nil
}
