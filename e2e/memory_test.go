package e2e

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Memory stays bounded under a load much larger than it: one NDJSON body of E2E_LOAD_MB into a log table
// and a DoPut stream of a third of that into a keyed one, where rows are narrow and dear, while the server holds less than E2E_RSS_MB, of which the pages of the program itself are 65.
func TestMemoryBound(t *testing.T) {
	s := newServer(t, "--cache-size=64MiB") // what is cached is no bound of what is on its way
	db := newDB(t, s)
	megabytes, most := setting("E2E_LOAD_MB", 150), setting("E2E_RSS_MB", 480)
	log := create(t, s, db, "log", "id BIGINT, a BIGINT, text STRING", "", 4)
	keyed := create(t, s, db, "keyed", "id BIGINT, a BIGINT, b BIGINT, c BIGINT, d BIGINT, e BIGINT, f BIGINT, g BIGINT", "id", 4)

	const filler = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna"
	lines := megabytes << 20 / (len(filler) + 60)
	r, w := io.Pipe()
	go func() {
		b := bufio.NewWriterSize(w, 256<<10)
		line := []byte{}
		for i := range lines {
			line = append(line[:0], `{"id":`...)
			line = strconv.AppendInt(line, int64(i), 10)
			line = append(line, `,"a":`...)
			line = strconv.AppendInt(line, int64(i)*7919, 10)
			line = append(line, `,"text":"`...)
			line = append(line, filler[:len(filler)-i%50]...)
			line = append(line, "\"}\n"...)
			if _, err := b.Write(line); err != nil {
				break
			}
		}
		b.Flush() // a broken pipe is seen by the reader
		w.Close()
	}()
	start := time.Now()
	o := s.ok(t, "POST", log.path()+"/records", io.Reader(r), "Content-Type", mediaNDJSON)
	require.Equal(t, fmt.Sprint(lines), fmt.Sprint(o["accepted"]))
	now, peak := s.rssMB(t)
	t.Logf("NDJSON: %d MB in %v; memory %d MB, at most %d MB", megabytes, time.Since(start).Round(time.Millisecond), now, peak)
	require.Less(t, peak, most)

	const rows = 10_000
	megabytes /= 3
	batches := megabytes << 20 / (rows * 8 * 8)
	p, err := s.dial(t).put(t.Context(), pathOf(keyed), schemaOf("id long, a long, b long, c long, d long, e long, f long, g long"))
	require.NoError(t, err)
	start = time.Now()
	for i := range batches {
		require.NoError(t, p.send(longs("id,a,b,c,d,e,f,g", rows, func(r, col int) int64 {
			n := int64(i*rows + r)
			return n * int64(1+col*7919)
		}), ""))
	}
	last, err := p.finish()
	require.NoError(t, err)
	require.EqualValues(t, batches*rows, last.Rows)
	now, peak = s.rssMB(t)
	t.Logf("DoPut: %d MB in %v; memory %d MB, at most %d MB", megabytes, time.Since(start).Round(time.Millisecond), now, peak)
	require.Less(t, peak, most)

	require.Equal(t, fmt.Sprint(lines), log.count(t, ""))
	require.Equal(t, fmt.Sprint(batches*rows), keyed.count(t, ""))
	resp := s.stream(t, log.path()+"/scan", mediaArrow)
	n, err := io.Copy(io.Discard, resp)
	require.NoError(t, err)
	resp.Close()
	_, peak = s.rssMB(t)
	t.Logf("read %d MB; memory at most %d MB", n>>20, peak)
	require.Less(t, peak, most)
	s.kill()
	start = time.Now()
	s.restart(t)
	_, peak = s.rssMB(t)
	t.Logf("back after %v; memory at most %d MB", time.Since(start).Round(time.Millisecond), peak)
	require.Less(t, peak, most)
	require.Equal(t, fmt.Sprint(batches*rows), keyed.count(t, ""))
}

// stream opens a GET whose body the caller reads and closes.
func (s *server) stream(t testing.TB, path, accept string) io.ReadCloser {
	t.Helper()
	req, err := s.request("GET", path, nil, "Accept", accept)
	require.NoError(t, err)
	resp, err := s.client.Do(req)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	return resp.Body
}
