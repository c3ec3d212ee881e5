package errs

// Code is the stable name of a kind of error, as users see it.
type Code string

// The codes. docs/errors.md explains each.
const (
	InvalidRequest          Code = "invalid_request"
	Unauthenticated         Code = "unauthenticated"
	PermissionDenied        Code = "permission_denied"
	ColumnDenied            Code = "column_denied"
	DatabaseNotFound        Code = "database_not_found"
	TableNotFound           Code = "table_not_found"
	PartitionNotFound       Code = "partition_not_found"
	RowNotFound             Code = "row_not_found"
	RouteNotFound           Code = "route_not_found"
	MethodNotAllowed        Code = "method_not_allowed"
	NotAcceptable           Code = "not_acceptable"
	UnsupportedMediaType    Code = "unsupported_media_type"
	DatabaseAlreadyExists   Code = "database_already_exists"
	TableAlreadyExists      Code = "table_already_exists"
	PartitionAlreadyExists  Code = "partition_already_exists"
	DatabaseNotEmpty        Code = "database_not_empty"
	TableRecreated          Code = "table_recreated"
	WriterFenced            Code = "writer_fenced"
	OutOfOrderSequence      Code = "out_of_order_sequence"
	SchemaChanged           Code = "schema_changed"
	IdempotencyInProgress   Code = "idempotency_in_progress"
	SnapshotGone            Code = "snapshot_gone"
	OffsetOutOfRange        Code = "offset_out_of_range"
	VersionMismatch         Code = "version_mismatch"
	TooLarge                Code = "too_large"
	InvalidName             Code = "invalid_name"
	InvalidSchema           Code = "invalid_schema"
	InvalidProperty         Code = "invalid_property"
	InvalidFilter           Code = "invalid_filter"
	UnknownColumn           Code = "unknown_column"
	UnknownField            Code = "unknown_field"
	DuplicateField          Code = "duplicate_field"
	MissingKey              Code = "missing_key"
	MissingColumn           Code = "missing_column"
	NullNotAllowed          Code = "null_not_allowed"
	TypeMismatch            Code = "type_mismatch"
	InvalidValue            Code = "invalid_value"
	ValueOutOfRange         Code = "value_out_of_range"
	KeyMismatch             Code = "key_mismatch"
	WrongTableKind          Code = "wrong_table_kind"
	ReadOnlyTable           Code = "read_only_table"
	DeleteDisabled          Code = "delete_disabled"
	IntegerOverflow         Code = "integer_overflow"
	PartialUpdateNotAllowed Code = "partial_update_not_allowed"
	PrefixTooShort          Code = "prefix_too_short"
	UnsupportedByLake       Code = "unsupported_by_lake"
	TooManyBuckets          Code = "too_many_buckets"
	TimestampInFuture       Code = "timestamp_in_future"
	PartitionExpired        Code = "partition_expired"
	IdempotencyKeyReused    Code = "idempotency_key_reused"
	TicketExpired           Code = "ticket_expired"
	UnsupportedSQL          Code = "unsupported_sql"
	QuotaExceeded           Code = "quota_exceeded"
	Overloaded              Code = "overloaded"
	Unavailable             Code = "unavailable"
	StorageFull             Code = "storage_full"
	Draining                Code = "draining"
	NotOwner                Code = "not_owner"
	UnknownOutcome          Code = "unknown_outcome"
	Internal                Code = "internal"
	CorruptData             Code = "corrupt_data"
	NotImplemented          Code = "not_implemented"
)

// GRPC is a gRPC status code's number (google.rpc.Code).
type GRPC uint32

// The gRPC codes the table uses.
const (
	grpcInvalidArgument    GRPC = 3
	grpcDeadlineExceeded   GRPC = 4
	grpcNotFound           GRPC = 5
	grpcAlreadyExists      GRPC = 6
	grpcPermissionDenied   GRPC = 7
	grpcResourceExhausted  GRPC = 8
	grpcFailedPrecondition GRPC = 9
	grpcAborted            GRPC = 10
	grpcOutOfRange         GRPC = 11
	grpcUnimplemented      GRPC = 12
	grpcInternal           GRPC = 13
	grpcUnavailable        GRPC = 14
	grpcDataLoss           GRPC = 15
	grpcUnauthenticated    GRPC = 16
)

// Kind is a row of the table: how a code is rendered.
type Kind struct {
	Code  Code
	HTTP  int    // HTTP status
	GRPC  GRPC   // gRPC status code
	Title string // one short sentence
	// Retry says whether the same request may succeed later (with the same
	// writer sequence or key, for UnknownOutcome).
	Retry bool
	// RetryAfterSeconds is the hint sent with it; 0 is none.
	RetryAfterSeconds int
}

var table = []Kind{
	{InvalidRequest, 400, grpcInvalidArgument, "The request is not well formed", false, 0},
	{Unauthenticated, 401, grpcUnauthenticated, "Authentication is missing or not valid", false, 0},
	{PermissionDenied, 403, grpcPermissionDenied, "Not allowed", false, 0},
	{ColumnDenied, 403, grpcPermissionDenied, "A column may not be read", false, 0},
	{DatabaseNotFound, 404, grpcNotFound, "No such database", false, 0},
	{TableNotFound, 404, grpcNotFound, "No such table", false, 0},
	{PartitionNotFound, 404, grpcNotFound, "No such partition", false, 0},
	{RowNotFound, 404, grpcNotFound, "No row has this key", false, 0},
	{RouteNotFound, 404, grpcNotFound, "No such operation", false, 0},
	{MethodNotAllowed, 405, grpcInvalidArgument, "The method is not allowed here", false, 0},
	{NotAcceptable, 406, grpcInvalidArgument, "None of the accepted media types can be sent", false, 0},
	{UnsupportedMediaType, 415, grpcInvalidArgument, "The media type or encoding of the body is not supported", false, 0},
	{DatabaseAlreadyExists, 409, grpcAlreadyExists, "The database exists already", false, 0},
	{TableAlreadyExists, 409, grpcAlreadyExists, "The table exists already", false, 0},
	{PartitionAlreadyExists, 409, grpcAlreadyExists, "The partition exists already", false, 0},
	{DatabaseNotEmpty, 409, grpcFailedPrecondition, "The database still has tables", false, 0},
	{TableRecreated, 409, grpcFailedPrecondition, "The table was dropped and created again", false, 0},
	{WriterFenced, 409, grpcFailedPrecondition, "A newer instance of this writer has taken over", false, 0},
	{OutOfOrderSequence, 409, grpcFailedPrecondition, "The writer sequence is out of order", false, 0},
	{SchemaChanged, 409, grpcFailedPrecondition, "The schema changed under the stream", false, 0},
	{IdempotencyInProgress, 409, grpcAborted, "A request with this key is still running", true, 1},
	{SnapshotGone, 409, grpcAborted, "The snapshot is no longer held", true, 0},
	{OffsetOutOfRange, 410, grpcOutOfRange, "The position is outside the log", false, 0},
	{VersionMismatch, 412, grpcFailedPrecondition, "The table has another version", false, 0},
	{TooLarge, 413, grpcInvalidArgument, "The request is too large", false, 0},
	{InvalidName, 422, grpcInvalidArgument, "The name is not valid", false, 0},
	{InvalidSchema, 422, grpcInvalidArgument, "The schema is not valid", false, 0},
	{InvalidProperty, 422, grpcInvalidArgument, "A property is not valid", false, 0},
	{InvalidFilter, 422, grpcInvalidArgument, "The filter is not valid", false, 0},
	{UnknownColumn, 422, grpcInvalidArgument, "No such column", false, 0},
	{UnknownField, 422, grpcInvalidArgument, "No such field", false, 0},
	{DuplicateField, 422, grpcInvalidArgument, "A field stands twice", false, 0},
	{MissingKey, 422, grpcInvalidArgument, "A key column is missing", false, 0},
	{MissingColumn, 422, grpcInvalidArgument, "A column is missing", false, 0},
	{NullNotAllowed, 422, grpcInvalidArgument, "NULL in a column that is NOT NULL", false, 0},
	{TypeMismatch, 422, grpcInvalidArgument, "A value is of another type", false, 0},
	{InvalidValue, 422, grpcInvalidArgument, "A value cannot be read", false, 0},
	{ValueOutOfRange, 422, grpcInvalidArgument, "A value does not fit its type", false, 0},
	{KeyMismatch, 422, grpcInvalidArgument, "The key in the body is not the key in the path", false, 0},
	{WrongTableKind, 422, grpcInvalidArgument, "This kind of table cannot do that", false, 0},
	{ReadOnlyTable, 422, grpcInvalidArgument, "The table can only be read", false, 0},
	{DeleteDisabled, 422, grpcInvalidArgument, "The table does not allow deletes", false, 0},
	{IntegerOverflow, 422, grpcInvalidArgument, "An integer overflowed", false, 0},
	{PartialUpdateNotAllowed, 422, grpcInvalidArgument, "The table does not take partial updates", false, 0},
	{PrefixTooShort, 422, grpcInvalidArgument, "The prefix does not cover the bucket key", false, 0},
	{UnsupportedByLake, 422, grpcInvalidArgument, "The lake format cannot hold this", false, 0},
	{TooManyBuckets, 422, grpcInvalidArgument, "The read covers too many buckets", false, 0},
	{TimestampInFuture, 422, grpcInvalidArgument, "The time lies in the future", false, 0},
	{PartitionExpired, 422, grpcInvalidArgument, "The partition has expired", false, 0},
	{IdempotencyKeyReused, 422, grpcInvalidArgument, "The key was used with another body", false, 0},
	{TicketExpired, 422, grpcInvalidArgument, "The ticket has expired", false, 0},
	{UnsupportedSQL, 422, grpcUnimplemented, "This SQL is not supported", false, 0},
	{QuotaExceeded, 429, grpcResourceExhausted, "The quota is used up", true, 1},
	{Overloaded, 429, grpcResourceExhausted, "The server has too much to do", true, 1},
	{Unavailable, 503, grpcUnavailable, "Not available at the moment", true, 1},
	{StorageFull, 503, grpcUnavailable, "The storage is full", true, 10},
	{Draining, 503, grpcUnavailable, "The server is shutting down", true, 1},
	{NotOwner, 503, grpcUnavailable, "Another process serves this shard", true, 1},
	{UnknownOutcome, 504, grpcDeadlineExceeded, "Whether the write took effect is not known", true, 0},
	{Internal, 500, grpcInternal, "Something went wrong inside", false, 0},
	{CorruptData, 500, grpcDataLoss, "Stored data is damaged", false, 0},
	{NotImplemented, 501, grpcUnimplemented, "Not implemented yet", false, 0},
}

var byCode = func() map[Code]Kind {
	m := make(map[Code]Kind, len(table))
	for _, k := range table {
		m[k.Code] = k
	}
	return m
}()

// Kinds returns the whole table.
func Kinds() []Kind { return append([]Kind(nil), table...) }

// KindOf returns the row of a code; an unknown code gets the row of Internal.
func KindOf(c Code) Kind {
	if k, ok := byCode[c]; ok {
		return k
	}
	return byCode[Internal]
}
