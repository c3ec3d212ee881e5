package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	subjectDir  = "data directory"
	subjectDisk = "disk"

	// diskLow and diskFull are parts of a disk, in percent; the alert is at the first.
	diskLow, diskFull = 10, 1
	// slowFsync is above what a disk of a database takes.
	slowFsync = 20 * time.Millisecond
	// fsyncs are made to see how long one takes.
	fsyncs = 16
	// future is how far ahead a file's time may be.
	future = time.Minute
)

// lookAtDataDir tells whose the directory is, and who may read it.
func (d *doctor) lookAtDataDir(context.Context) {
	info, err := os.Stat(d.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.ok(subjectDir, "%s is not there yet: the first start makes it", d.dir)
		return
	case err != nil:
		d.failed(subjectDir, "run this as the user that the server runs as", "%v", err)
		return
	case !info.IsDir():
		d.failed(subjectDir, "name a folder with --data-dir", "%s is not a folder", d.dir)
		return
	}
	well := true
	if mode := info.Mode().Perm(); mode&0o002 != 0 {
		well = false
		d.failed(subjectDir, "chmod 700 "+d.dir, "every user of this machine may write into %s (mode %04o)", d.dir, mode)
	} else if mode&0o077 != 0 {
		well = false
		d.warn(subjectDir, "chmod 700 "+d.dir, "others on this machine may look into %s (mode %04o); the files of tables can be read by who gets there", d.dir, mode)
	}
	owner := ownerOf(info)
	if me := os.Geteuid(); owner != me {
		well = false
		d.warn(subjectDir, "run this, and the server, as "+userName(owner), "%s is of %s, and this runs as %s, so what is seen may not be what the server sees", d.dir, userName(owner), userName(me))
	}
	if stranger, of := d.strangerIn(owner); stranger != "" {
		well = false
		d.failed(subjectDir, fmt.Sprintf("chown -R %s %s, while no server runs", userName(owner), d.dir), "%s is of %s, and the directory of %s: a server was started as another user once", stranger, userName(of), userName(owner))
	}
	if file, ahead := d.ahead(); file != "" {
		well = false
		d.failed("clocks", "set this machine's clock (chronyc tracking, timedatectl)", "%s was written %v from now: this machine's clock has gone back", file, ahead.Round(time.Second))
	}
	if well {
		d.ok(subjectDir, "%s, of %s, mode %04o", d.dir, userName(owner), info.Mode().Perm())
	}
	d.clusterOfDir()
}

// absent says whether a file is not there.
func (d *doctor) absent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

func userName(id int) string {
	if u, err := user.LookupId(strconv.Itoa(id)); err == nil {
		return u.Username
	}
	return fmt.Sprintf("user %d", id)
}

// files of the directory and of the folders in it are those whose owner and time are looked at.
func (d *doctor) files() []string {
	top, _ := filepath.Glob(filepath.Join(d.dir, "*"))
	below, _ := filepath.Glob(filepath.Join(d.dir, "*", "*")) // the pattern is right
	return slices.Concat(top, below)
}

// strangerIn is a file of another owner than the directory's.
func (d *doctor) strangerIn(owner int) (file string, of int) {
	for _, f := range d.files() {
		if info, err := os.Lstat(f); err == nil && ownerOf(info) != owner {
			return f, ownerOf(info)
		}
	}
	return "", 0
}

// ahead is a file that was written in what is the future by our clock.
func (d *doctor) ahead() (file string, by time.Duration) {
	now := d.now()
	for _, f := range d.files() {
		if info, err := os.Lstat(f); err == nil {
			if a := info.ModTime().Sub(now); a > max(future, by) {
				file, by = f, a
			}
		}
	}
	return file, by
}

// fileSystems are those that are worth a word, by their number.
var fileSystems = map[int64]struct{ name, trouble, advice string }{
	unix.TMPFS_MAGIC:           {"tmpfs", "is memory: everything is gone when the machine stops", "put it on a disk"},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlayfs", "is that of a container, and goes with it", "mount a volume there"},
	unix.NFS_SUPER_MAGIC:       {"NFS", "is another machine's: locks and fsync are as good as that server", "put it on a local disk, or be sure of the server (hard mount, sync export)"},
	unix.SMB2_SUPER_MAGIC:      {"SMB", "is another machine's, and does not do what a database needs", "put it on a local disk"},
	unix.CIFS_SUPER_MAGIC:      {"CIFS", "is another machine's, and does not do what a database needs", "put it on a local disk"},
	unix.FUSE_SUPER_MAGIC:      {"FUSE", "is a program's, which may or may not write what it is told to sync", "put it on a local disk"},
	unix.EXT4_SUPER_MAGIC:      {name: "ext4"},
	unix.XFS_SUPER_MAGIC:       {name: "XFS"},
	unix.BTRFS_SUPER_MAGIC:     {name: "Btrfs"},
	0x2fc12fc1:                 {name: "ZFS"},
}

// lookAtDisk tells how much room there is, and how long an fsync takes, where the data is or
// will be.
func (d *doctor) lookAtDisk(context.Context) {
	at := existing(d.dir)
	var st syscall.Statfs_t
	if err := syscall.Statfs(at, &st); err != nil {
		d.failed(subjectDisk, "", "%s: %v", at, err)
		return
	}
	system, known := fileSystems[st.Type]
	if !known {
		system.name = fmt.Sprintf("a file system of type %#x", st.Type)
	}
	if system.trouble != "" {
		d.warn(subjectDisk, system.advice, "the file system of %s (%s) %s", at, system.name, system.trouble)
	}
	free, size, err := disk(at)
	switch {
	case err != nil:
		d.failed(subjectDisk, "", "%s: %v", at, err)
	case size > 0 && free*100 < size*diskFull:
		d.failed(subjectDisk, "free some space, or make the disk larger: writes are refused when it is full, reads go on", "%s of %s are free at %s", bytesText(free), bytesText(size), at)
	case size > 0 && free*100 < size*diskLow:
		d.warn(subjectDisk, "make the disk larger, shorten table.log.ttl, or turn the lake on for large log tables", "%s of %s are free at %s", bytesText(free), bytesText(size), at)
	default:
		d.ok(subjectDisk, "%s of %s are free at %s (%s)", bytesText(free), bytesText(size), at, system.name)
	}
	if st.Files > 0 && st.Ffree*100 < st.Files {
		d.failed(subjectDisk, "remove files, or make the file system anew with more inodes", "%d of %d inodes are free at %s", st.Ffree, st.Files, at)
	}
	d.tryFsync(at)
}

// existing is the folder, or the nearest one above it that is there.
func existing(dir string) string {
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// tryFsync writes and syncs a scratch file.
func (d *doctor) tryFsync(at string) {
	f, err := os.CreateTemp(at, ".millrace-doctor-*")
	if err != nil {
		d.failed(subjectDisk, "let the user that the server runs as write there", "%v", err)
		return
	}
	defer func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, 4096)
	took := make([]time.Duration, 0, fsyncs)
	for range fsyncs {
		if _, err = f.Write(block); err != nil {
			break
		}
		begin := time.Now()
		if err = f.Sync(); err != nil {
			break
		}
		took = append(took, time.Since(begin))
	}
	if err != nil {
		d.failed(subjectDisk, "look at the disk (dmesg): without fsync nothing can be acknowledged", "writing and syncing a file in %s: %v", at, err)
		return
	}
	slices.Sort(took)
	median, most := took[len(took)/2], took[len(took)-1]
	if median > slowFsync {
		d.warn(subjectDisk, "each write waits for one: take a disk that is made for it, or one that does nothing else", "an fsync takes %v, at most %v", round(median), round(most))
		return
	}
	d.ok(subjectDisk, "an fsync takes %v, at most %v", round(median), round(most))
}

// round leaves three digits or so of a duration.
func round(t time.Duration) time.Duration {
	switch {
	case t > time.Second:
		return t.Round(10 * time.Millisecond)
	case t > time.Millisecond:
		return t.Round(10 * time.Microsecond)
	}
	return t.Round(time.Microsecond)
}

// bytesText is a size for people.
func bytesText(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	if u == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}
