package shardrpc

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/trace"
)

// maxRequest bounds a call by HTTP: an op may have as much as a shard takes at a time.
const maxRequest = 512 << 20

// maxForm bounds what a read of rows asks for.
const maxForm = 16 << 20

// Serves says whether a path is one of Server's.
func Serves(path string) bool { return strings.HasPrefix(path, Root) }

// ServeHTTP answers other processes by HTTP (P5).
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || s.o.Verify(token) != nil {
		trace.Of(r.Context()).Fail(errs.Unauthenticated)
		http.Error(w, "no token of this cluster", http.StatusUnauthorized)
		return
	}
	r = r.WithContext(trace.Extract(r.Context(), r.Header.Get))
	if r.Method != http.MethodPost {
		http.Error(w, "POST only", http.StatusMethodNotAllowed)
		return
	}
	path, number := r.URL.Path[:strings.LastIndexByte(r.URL.Path, '/')+1], r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	id, err := strconv.ParseUint(number, 10, 16)
	if err != nil || path != pathCall && path != pathRead {
		http.Error(w, "no such path", http.StatusNotFound)
		return
	}
	if _, err := s.shard(millrace.ShardID(id)); err != nil {
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
		return
	}
	if r.ContentLength < 0 || r.ContentLength > maxRequest || path == pathRead && r.ContentLength > maxForm {
		http.Error(w, "a call says how long it is", http.StatusRequestEntityTooLarge)
		return
	}
	if path == pathCall {
		if s.posts.Acquire(r.Context(), 1) != nil {
			return // the other one went away
		}
		defer s.posts.Release(1)
		done, err := s.enter(r.Context(), r.ContentLength)
		if err != nil {
			return // the other one went away
		}
		defer done()
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, "the call is cut off", http.StatusBadRequest)
		return
	}
	if path == pathRead {
		s.read(w, r, millrace.ShardID(id), body)
		return
	}
	answer := s.serve(r.Context(), millrace.ShardID(id), body, true)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = w.Write(answer) // the other one may be gone
}
