package owner

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Prefixes of the keys.
const (
	sessionPrefix = "session."
	leasePrefix   = "lease."
)

// maxWorkerName bounds a worker's name, which is part of a key.
const maxWorkerName = 63

// Session says that a process is there, and how it is reached. It is written anew by
// each renewal.
type Session struct {
	Worker      string `json:"worker"`
	Incarnation string `json:"incarnation"` // of the process, or of a session that was lost and begun again
	Info
	Draining bool `json:"draining,omitempty"`
	// Standbys is how far the shards are that the process follows.
	Standbys map[millrace.ShardID]Standing `json:"standbys,omitempty"`
	// Unable are shards that the process could not open: others should have them.
	Unable []millrace.ShardID `json:"unable,omitempty"`
}

// Info is what a process tells of itself.
type Info struct {
	HTTP          string   `json:"http,omitempty"`   // host:port of the HTTP address that other processes reach
	Flight        string   `json:"flight,omitempty"` // host:port of Flight, as clients reach it
	Roles         []string `json:"roles"`
	Version       string   `json:"version"`
	FeatureLevel  int      `json:"feature_level"`
	StartedMicros int64    `json:"started_micros"`
}

// Standing is how far a standby is.
type Standing struct {
	LSN millrace.LSN `json:"lsn"`
	// Behind is how many records of the log it had not applied when it last looked.
	Behind uint64 `json:"behind"`
	// Ready says that it had nearly everything when it last looked, so that it is a short way
	// to the end.
	Ready bool `json:"ready"`
}

// Lease says who should serve a shard.
type Lease struct {
	Worker      string         `json:"worker"`
	Incarnation string         `json:"incarnation"`
	Epoch       millrace.Epoch `json:"epoch"`
	// Released says that the worker has let go of the shard: whoever the placement
	// gives it to may take it, To before others.
	Released bool   `json:"released,omitempty"`
	To       string `json:"to,omitempty"`
}

// CheckWorkerName says what is wrong with a name for a worker, if anything is.
func CheckWorkerName(name string) error {
	ok := name != "" && len(name) <= maxWorkerName
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if !ok {
		return errs.New(errs.InvalidName, "a worker's name has 1 to %d letters, digits, - and _, which %q has not", maxWorkerName, name)
	}
	return nil
}

func sessionKey(worker string) string { return sessionPrefix + worker }

func leaseKey(id millrace.ShardID) string { return fmt.Sprintf("%s%05d", leasePrefix, id) }

func parseLeaseKey(key string) (millrace.ShardID, bool) {
	digits, ok := strings.CutPrefix(key, leasePrefix)
	n, err := strconv.ParseUint(digits, 10, 16)
	return millrace.ShardID(n), ok && err == nil && len(digits) == 5
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // strings and numbers alone
		panic(fmt.Sprintf("owner: %v", err))
	}
	return b
}
