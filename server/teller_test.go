package server

import (
	"testing"

	millrace "github.com/millrace/millrace"
)

// Owners are told nothing any more of tables and partitions that are gone, each of which is
// asked for once, and what is told of them meanwhile does not wait for that.
func TestTellerForgets(t *testing.T) {
	tl := newTeller(nil)
	all := map[millrace.BucketID]millrace.Offset{}
	for b := range uint16(100) {
		for p := range millrace.PartitionID(10) {
			all[millrace.BucketID{Table: 1, Partition: p, Bucket: b}] = 5
		}
	}
	tl.Tiered(all)
	asked := 0
	tl.forget(func(p part) bool {
		asked++
		tl.Tiered(map[millrace.BucketID]millrace.Offset{{Table: 2, Bucket: 7}: 3})
		return p.partition < 4
	})
	if asked != 10 {
		t.Errorf("asked %d times of 10 partitions", asked)
	}
	if len(tl.all) != 401 || len(tl.news) != 401 {
		t.Errorf("%d buckets are held, and %d are news", len(tl.all), len(tl.news))
	}
}
