// Package tier moves rows from the log to the lake: what a round takes, when, and what
// is allowed to wait.
package tier
