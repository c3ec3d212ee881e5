package server

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// clusterFile says which cluster a data directory belongs to.
	clusterFile = "cluster.json"
	// addressesFile says where the running server listens; it is there while it does.
	addressesFile = "addresses.json"
)

// makeDataDir makes dir and its missing parents, durably.
func makeDataDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := makeDataDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the data directory: %w", err)
	}
	return syncDir(filepath.Dir(dir))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// writeFile makes or replaces a file, so that after a crash it is the old or the
// new one.
func writeFile(path string, b []byte) error {
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("server: %T does not encode: %v", v, err)) // plain values always do
	}
	return writeFile(path, append(b, '\n'))
}

// clusterRecord is the content of clusterFile.
type clusterRecord struct {
	Format    int    `json:"format"`
	ClusterID string `json:"cluster_id"` // hex
}

const clusterFormat = 1

// guardCluster makes sure that the directory's data belongs to the catalog's
// cluster: a catalog that was lost, and made anew when it was opened, must not
// adopt or delete what the old one knew.
func guardCluster(dir string, id [16]byte) error {
	path := filepath.Join(dir, clusterFile)
	want := clusterRecord{Format: clusterFormat, ClusterID: hex.EncodeToString(id[:])}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return writeJSON(path, want)
	}
	if err != nil {
		return err
	}
	var got clusterRecord
	if err := json.Unmarshal(b, &got); err != nil {
		return fmt.Errorf("%s is damaged: %w", path, err)
	}
	switch {
	case got.Format > clusterFormat:
		return fmt.Errorf("%s has format %d: it was written by a newer release; start that one", path, got.Format)
	case got != want:
		return fmt.Errorf("%s says that this is the data of cluster %s, and the catalog is that of cluster %s: bring back the catalog that belongs here (%s), or use another data directory",
			path, got.ClusterID, want.ClusterID, filepath.Join(dir, catalogDir))
	}
	return nil
}

// addressesRecord is the content of addressesFile.
type addressesRecord struct {
	HTTP    string `json:"http"`
	Flight  string `json:"flight"`
	Metrics string `json:"metrics,omitempty"`
	Debug   string `json:"debug,omitempty"`
	// TLS says that HTTP and Flight speak it; Metrics never does.
	TLS bool `json:"tls,omitempty"`
	PID int  `json:"pid"`
}

func publishAddresses(dir string, r addressesRecord) error {
	return writeJSON(filepath.Join(dir, addressesFile), r)
}

func withdrawAddresses(dir string) error {
	return os.Remove(filepath.Join(dir, addressesFile))
}
