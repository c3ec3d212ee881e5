// Package sharedwrite writes bytes that others go on using. vfs.File lets a file
// change the bytes it is given. The operating system's files never do; those of
// Pebble's in-memory file system do under the race detector, to find who relies on it.
// Copying every payload for their sake would cost 0.15 CPU-seconds a GB, so it is done
// in race builds only.
package sharedwrite
