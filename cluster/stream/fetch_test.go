package stream

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// What JetStream answers is read as encoding/json reads it.
func TestParseFetched(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, data := range [][]byte{nil, {}, {0}, []byte("x"), all, []byte(strings.Repeat("record", 200_000))} {
		for _, subject := range []string{"mr.0.wal.1", `a"data":"b`, `\`} {
			text, err := json.Marshal(map[string]any{"type": "io.nats.jetstream.api.v1.stream_msg_get_response", "message": map[string]any{
				"subject": subject, "seq": 7, "hdrs": []byte("NATS/1.0\r\nMillrace-Writer: w\r\n\r\n"), "data": data, "time": "2026-11-30T08:00:00Z",
			}})
			require.NoError(t, err)
			m, err := parseFetched(text)
			require.NoError(t, err)
			require.Equal(t, subject, m.Subject)
			require.EqualValues(t, 7, m.Sequence)
			require.Equal(t, "w", m.Header.Get("Millrace-Writer"))
			require.Equal(t, string(data), string(m.Data))
		}
	}
	m, err := parseFetched([]byte(`{"message":{"subject":"s","seq":1,"data":"eA\u003d="}}`))
	require.NoError(t, err)
	require.Equal(t, "x", string(m.Data), "escapes are read too")

	_, err = parseFetched([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`))
	require.ErrorIs(t, err, jetstream.ErrMsgNotFound)
	_, err = parseFetched([]byte(`{"error":{"code":404,"err_code":10059,"description":"stream not found"}}`))
	require.True(t, isGone(err), "%v", err)
	for _, bad := range []string{``, `{}`, `{"message":null}`, `{"message":{"data":"eA==`, `{"message":{"data":"="}}`, `{"message":{"data":"eA==","seq":-1}}`, `{"message":{"hdrs":"eA=="}}`} {
		_, err = parseFetched([]byte(bad))
		require.Error(t, err, bad)
	}
}
