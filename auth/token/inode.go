package token

import (
	"os"
	"syscall"
)

// inode is the file's number, by which one is told that was put in another's place.
func inode(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
