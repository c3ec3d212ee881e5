package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// What makes no sense is refused, and says which field is wrong.
func TestQuotasRefused(t *testing.T) {
	tc := openMem(t)
	for _, c := range []struct {
		principal string
		l         millrace.Limits
		field     string
	}{
		{"ann", millrace.Limits{}, "principal"},
		{"user:", millrace.Limits{}, "principal"},
		{"Default", millrace.Limits{}, "principal"},
		{"user:a\x00", millrace.Limits{}, "principal"},
		{"group:" + strings.Repeat("a", 300), millrace.Limits{}, "principal"},
		{"user:a", millrace.Limits{WriteRows: -1}, "write_rows_per_s"},
		{"user:a", millrace.Limits{WriteBytes: -1}, "write_bytes_per_s"},
		{"user:a", millrace.Limits{ReadBytes: -1}, "read_bytes_per_s"},
		{"user:a", millrace.Limits{Streams: -1}, "streams"},
	} {
		if _, err := tc.SetQuota(t.Context(), c.principal, c.l); !errs.Is(err, errs.InvalidValue) || fieldOf(err) != c.field {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if q, err := tc.DeleteQuota(t.Context(), "user:a"); q != nil || err != nil || len(tc.Quotas()) > 0 || tc.FeatureLevel() != FeatureBase {
		t.Error(q, err, tc.Quotas(), tc.FeatureLevel())
	}
}

// Quotas are found by name, replaced and taken away, here, after a start and in a process
// that follows; numbers are not used again.
func TestQuotas(t *testing.T) {
	tc := openMem(t)
	follower, err := OpenKV(t.Context(), sharedKV{tc.kv}, Options{Logger: tc.log, Clock: tc.clock})
	if err != nil {
		t.Fatal(err)
	}
	set := func(principal string, l millrace.Limits) *millrace.Quota {
		t.Helper()
		q, err := tc.SetQuota(t.Context(), principal, l)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	want := func(c *Catalog, of ...millrace.Quota) {
		t.Helper()
		all := []*millrace.Quota{}
		byName := map[string]*millrace.Quota{}
		for _, q := range of {
			all = append(all, &q)
			byName[q.Principal] = &q
		}
		if d := cmp.Diff(all, c.Quotas()); d != "" && len(all)+len(c.Quotas()) > 0 {
			t.Error(d)
		}
		for _, name := range []string{"default", "user:a", "user:b", "group:a"} {
			if d := cmp.Diff(byName[name], c.Quota(name)); d != "" {
				t.Error(name, d)
			}
		}
	}
	first := set("user:a", millrace.Limits{WriteRows: 1})
	held := tc.Quotas()
	set("default", millrace.Limits{Streams: 5})
	set("group:a", millrace.Limits{WriteBytes: 2, ReadBytes: 3})
	if q := set("user:a", millrace.Limits{ReadBytes: 9}); q.ID != first.ID {
		t.Error(q)
	}
	revision := tc.Revision()
	set("user:a", millrace.Limits{ReadBytes: 9})
	if tc.Revision() != revision {
		t.Error("a change that changes nothing was made")
	}
	if q, err := tc.DeleteQuota(t.Context(), "group:a"); err != nil || q.ID != 3 {
		t.Error(q, err)
	}
	set("user:b", millrace.Limits{})
	after := []millrace.Quota{
		{ID: 1, Principal: "user:a", Limits: millrace.Limits{ReadBytes: 9}},
		{ID: 2, Principal: "default", Limits: millrace.Limits{Streams: 5}},
		{ID: 4, Principal: "user:b"},
	}
	want(tc.Catalog, after...)
	if err := follower.await(t.Context(), tc.current.Load().headRevision); err != nil {
		t.Fatal(err)
	}
	want(follower, after...)
	if err := follower.Close(); err != nil {
		t.Fatal(err)
	}
	if len(held) != 1 || held[0].Limits.WriteRows != 1 || tc.FeatureLevel() != FeatureQuotas {
		t.Error(held, tc.FeatureLevel())
	}
	tc.reopen(t)
	want(tc.Catalog, after...)
}

// There is a bound to how many there are, and those that are there can be changed still.
func TestQuotasBound(t *testing.T) {
	tc := openMem(t)
	s := tc.current.Load().edit()
	s.quotaOf = maps.Clone(s.quotaOf)
	for i := range MaxQuotas {
		q := &millrace.Quota{ID: millrace.QuotaID(i + 1), Principal: fmt.Sprint("user:", i)}
		s.quotas, s.quotaOf[q.Principal] = append(s.quotas, q), q
	}
	tc.current.Store(s)
	if _, err := tc.SetQuota(t.Context(), "user:x", millrace.Limits{}); !errs.Is(err, errs.TooLarge) {
		t.Error(err)
	}
	if q, err := tc.SetQuota(t.Context(), "user:7", millrace.Limits{Streams: 1}); err != nil || q.ID != 8 || tc.Quota("user:7").Limits.Streams != 1 {
		t.Error(q, err)
	}
}

// Quotas that make no sense are damage.
func TestQuotasDamaged(t *testing.T) {
	tc := openMem(t)
	for _, name := range []string{"user:x", "user:y"} {
		if _, err := tc.SetQuota(t.Context(), name, millrace.Limits{Streams: 1}); err != nil {
			t.Fatal(err)
		}
	}
	entries, _, err := tc.kv.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(entries, func(e Entry) bool { return strings.HasPrefix(e.Key, prefixQuota) })
	for text, code := range map[string]errs.Code{
		`{"id":1,"principal":"user:x","streams":1}`:  "",
		`{"id":1,"principal":"default","streams":1}`: "",
		`{"id":2,"principal":"user:x","streams":1}`:  errs.CorruptData,
		`{"id":1,"principal":"x","streams":1}`:       errs.CorruptData,
		`{"id":1,"principal":"user:x","streams":-1}`: errs.CorruptData,
		`{"id":1,"principal":"user:y","streams":1}`:  errs.CorruptData, // the other one's
		`{`: errs.CorruptData,
	} {
		damaged := slices.Clone(entries)
		damaged[at].Value = []byte(text)
		if _, err := loadSnapshot(damaged); errs.CodeOf(err) != code {
			t.Errorf("%s: %v", text, err)
		}
	}
	s := tc.current.Load()
	head := slices.IndexFunc(entries, func(e Entry) bool { return e.Key == keyHead })
	for text, code := range map[string]errs.Code{
		`{"id":1,"principal":"user:x","streams":2}`: "",
		`{"id":1,"principal":"user:z","streams":2}`: errs.CorruptData,
		`{"id":1,"principal":"user:y","streams":2}`: errs.CorruptData,
		`{"id":9,"principal":"user:z","streams":2}`: errs.CorruptData,
	} {
		var key string
		if _, err := fmt.Sscanf(text, `{"id":%1s`, &key); err != nil {
			t.Fatal(err)
		}
		writes := []Write{{Key: keyHead, Value: entries[head].Value}, {Key: prefixQuota + "000000000" + key, Value: []byte(text)}}
		if _, err := s.apply(s.headRevision+1, writes); errs.CodeOf(err) != code {
			t.Errorf("%s: %v", text, err)
		}
	}
}
