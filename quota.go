package millrace

// DefaultPrincipal names in place of a principal the quota of each user who has none, by
// name or by a group.
const DefaultPrincipal = "default"

// QuotaID numbers a quota; never reused.
type QuotaID uint32

// Quota bounds what a principal may do in a process that serves clients. It is immutable.
type Quota struct {
	ID QuotaID
	// Principal is user:<subject>, group:<name> or DefaultPrincipal.
	Principal string
	Limits    Limits
}

// Limits are what a principal may do; 0 is no limit.
type Limits struct {
	WriteRows  int64 // a second
	WriteBytes int64 // a second
	ReadBytes  int64 // a second
	Streams    int64 // at a time
}
