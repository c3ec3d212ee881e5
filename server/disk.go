package server

import (
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// disk is how much room the file system of a folder has, in bytes.
func disk(dir string) (free, size uint64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	unit := uint64(st.Bsize)
	return st.Bavail * unit, st.Blocks * unit, nil
}

// watchDisk shows how full the disk of the data directory is.
func watchDisk(reg prometheus.Registerer, dir string) {
	p := promauto.With(reg)
	gauge := func(name, help string, of func(free, size uint64) uint64) {
		p.NewGaugeFunc(prometheus.GaugeOpts{Name: "millrace_server_disk_" + name, Help: help}, func() float64 {
			free, size, err := disk(dir)
			if err != nil {
				return 0 // which is alarming enough
			}
			return float64(of(free, size))
		})
	}
	gauge("free_bytes", "Bytes that are free on the disk of the data directory.", func(free, _ uint64) uint64 { return free })
	gauge("size_bytes", "Bytes that this disk has.", func(_, size uint64) uint64 { return size })
}
