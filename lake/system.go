package lake

import millrace "github.com/millrace/millrace"

// SystemColumns are what a lake table has behind the table's own columns when its
// options ask for it. A row that came from the state of a keyed table has no offset and
// no time. They have no ids of the table: the format numbers them.
var SystemColumns = []millrace.Column{
	{Name: "__bucket", Type: millrace.DataType{Kind: millrace.Int}},
	{Name: "__offset", Type: millrace.DataType{Kind: millrace.BigInt}, Nullable: true},
	{Name: "__timestamp", Type: millrace.DataType{Kind: millrace.TimestampLTZ, Precision: 6}, Nullable: true},
}
