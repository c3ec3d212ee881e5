package lake

import (
	"time"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// State says how a lake table does.
type State string

// The states.
const (
	// StateEmpty: nothing was committed yet.
	StateEmpty State = "empty"
	// StateOK: the last round went well.
	StateOK State = "ok"
	// StateFailing: rounds fail, and are tried again, further and further apart; or files
	// of snapshots that are kept were lost, or another writer's deletes cannot be read.
	StateFailing State = "failing"
)

// Failure says what is wrong with a lake table.
type Failure struct {
	Code   errs.Code `json:"code"`
	Detail string    `json:"detail"`
	Since  time.Time `json:"since"`
}

// Status is how far a table is in the lake.
type Status struct {
	Table    millrace.TableID
	Enabled  bool
	Format   millrace.LakeFormat
	Location string // "" while the lake cannot be reached
	State    State
	Failure  *Failure // of StateFailing
	// Of the newest snapshot; the zero values while there is none.
	Snapshot    int64
	Round       int64
	CommittedAt time.Time
	Totals      Totals
	// Lag is the age of the oldest record that is not in the lake; 0 when all are.
	Lag time.Duration
	// Pending is how many records are not in the lake.
	Pending int64
	// Offsets are by bucket key, of the buckets that the workers have and that have
	// something in the lake; of the first MaxStatusOffsets only.
	Offsets map[string]millrace.Offset
	// Skipped is how many records the log let go of before they were tiered, as tiering
	// was off then, of all rounds that were committed.
	Skipped int64
	// Tiered is how many rows the call wrote, of Tier.
	Tiered int64
}

// Purging is a dropped table whose lake table is being removed.
type Purging struct {
	millrace.Purge
	Failure *Failure // of the last try; nil: it was not made yet, or is the first
}

// MaxStatusOffsets bounds Status.Offsets.
const MaxStatusOffsets = 10_000
