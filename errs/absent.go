package errs

import "fmt"

// clipBytes is how much of a name stands in a message.
const clipBytes = 64

// NoDatabase says that there is no database of a name. What may not be known of is answered
// with it, too, so it is made here alone.
func NoDatabase(name string) *Error {
	return New(DatabaseNotFound, "there is no database %s", clip(name))
}

// NoTable says that there is no table of a name; see NoDatabase.
func NoTable(database, table string) *Error {
	return New(TableNotFound, "there is no table %s in database %q", clip(table), database)
}

// NoTableID says that there is no table with a number; see NoDatabase.
func NoTableID(id uint32) *Error { return New(TableNotFound, "there is no table with id %d", id) }

// clip quotes a name for a message, cut when it is long.
func clip(s string) string {
	if len(s) > clipBytes {
		return fmt.Sprintf("%q…", s[:clipBytes])
	}
	return fmt.Sprintf("%q", s)
}
