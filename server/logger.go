package server

import (
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/millrace/millrace/trace"
)

// Formats of the log.
const (
	formatText = "text"
	formatJSON = "json"
)

// newLogger writes to w as the settings say. REQUIRES: they are valid.
func newLogger(w io.Writer, s *Settings) *slog.Logger {
	level, err := logLevel(s.LogLevel)
	if err != nil {
		panic(err) // Validate has taken it
	}
	if s.LogFormat == formatJSON {
		return slog.New(trace.NewHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})))
	}
	f, isFile := w.(*os.File)
	return slog.New(trace.NewHandler(tint.NewTextHandler(w, &tint.Options{
		Level: level, TimeFormat: time.RFC3339, NoColor: !isFile || !term.IsTerminal(int(f.Fd())),
	})))
}

func logLevel(s string) (slog.Level, error) {
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.ToLower(l.String()) == s {
			return l, nil
		}
	}
	return 0, wrong("log-level", "%q is not one of debug, info, warn, error", s)
}
