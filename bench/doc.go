// Command bench measures Millrace beside the raw limit of the machine, or beside
// the program a user would take instead, and writes what it found to bench/results.
// Each file is one workload or one activity of measuring; README.md says what is
// measured, how, and what came out.
//
// It leaves micro-benchmarks to the packages (go test -bench) and correctness to
// e2e: a workload checks its answers only as far as a wrong one would be faster.
//
// B1. A figure is a ratio of two runs that followed each other in one process tree;
// nothing is compared with a number from another day.
// B2. Nothing is prepared inside a measured interval: batches are encoded, programs
// started and tables loaded before.
// B3. Both sides do the same work: same bytes, same durability, as many connections.
// Where that cannot be, README.md says what differs.
//
// Data, logs and profiles are in bench/out, which is emptied of data at the end.
package main
