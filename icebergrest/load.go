package icebergrest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

// Which snapshots are in the metadata of an answer: all, or those that a branch or tag
// refers to.
const (
	allSnapshots        = "all"
	referencedSnapshots = "refs"
)

// loadTable answers with the newest metadata of a table.
func (h *Handler) loadTable(w http.ResponseWriter, r *http.Request) error {
	mode := r.URL.Query().Get("snapshots")
	switch mode {
	case "":
		mode = allSnapshots
	case allSnapshots, referencedSnapshots:
	default:
		return errs.New(errs.InvalidValue, "snapshots %q is neither %s nor %s", clip(mode), allSnapshots, referencedSnapshots)
	}
	t, err := h.table(r)
	if err == nil && h.o.Access != nil { // the files hold all columns, those too that were dropped
		err = h.o.Access.Allow(r.Context(), millrace.VerbRead, t)
	}
	if err != nil {
		return err
	}
	location, metadata, err := h.o.Lake.Metadata(r.Context(), t)
	if e, ok := errors.AsType[*errs.Error](err); ok && errs.KindOf(e.Code).HTTP < http.StatusInternalServerError && e.Code != errs.Overloaded && e.Code != errs.TableNotFound {
		// A location that holds something else, say, is no fault of who asks.
		return errs.New(errs.CorruptData, "the lake table of %s cannot be read: %v", t.Path, e)
	} else if err != nil {
		return err
	}
	if mode == referencedSnapshots {
		if metadata, err = withoutHistory(metadata); err != nil {
			return errs.New(errs.CorruptData, "metadata %s cannot be read: %v", location, err)
		}
	}
	body, err := json.Marshal(struct {
		Location string            `json:"metadata-location"`
		Metadata json.RawMessage   `json:"metadata"`
		Config   map[string]string `json:"config"`
	}{location, metadata, h.o.FileIO})
	if err != nil {
		return errs.New(errs.CorruptData, "metadata %s cannot be read: %v", location, err)
	}
	tag := entityTag(body)
	w.Header().Set("ETag", tag)
	if matches(r, tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // the client went away
	return nil
}

// withoutHistory leaves out snapshots that neither a branch nor a tag refers to. The
// snapshot log stays: clients that go back in time fetch what it names.
func withoutHistory(metadata []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(metadata, &fields); err != nil {
		return nil, err
	}
	type reference struct {
		Snapshot int64 `json:"snapshot-id"`
	}
	var snapshots []json.RawMessage
	kept := []json.RawMessage{}
	var refs map[string]reference
	var current *int64
	for name, into := range map[string]any{"snapshots": &snapshots, "refs": &refs, "current-snapshot-id": &current} {
		if raw, ok := fields[name]; ok {
			if err := json.Unmarshal(raw, into); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if len(snapshots) == 0 {
		return metadata, nil
	}
	referred := map[int64]bool{}
	if current != nil {
		referred[*current] = true
	}
	for _, ref := range refs {
		referred[ref.Snapshot] = true
	}
	for _, raw := range snapshots {
		var s reference
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, fmt.Errorf("snapshots: %w", err)
		}
		if referred[s.Snapshot] {
			kept = append(kept, raw)
		}
	}
	raw, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	fields["snapshots"] = raw
	return json.Marshal(fields)
}

// entityTag tells answers apart.
func entityTag(body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// matches says whether the client has this answer already.
func matches(r *http.Request, tag string) bool {
	for _, header := range r.Header.Values("If-None-Match") {
		if slices.ContainsFunc(strings.Split(header, ","), func(s string) bool {
			s = strings.TrimPrefix(strings.TrimSpace(s), "W/")
			return s == "*" || s == tag
		}) {
			return true
		}
	}
	return false
}
