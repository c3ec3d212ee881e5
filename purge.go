package millrace

import "time"

// Purge is a table that was dropped and whose lake table is still to be removed.
type Purge struct {
	Table     TableID
	Path      TablePath // that it had; another table may have it by now
	DroppedAt time.Time
}
