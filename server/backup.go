package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/millrace/millrace/catalog/backup"
)

// lastExportTime is how long the last export of a server that ends may take.
const lastExportTime = 5 * time.Second

// openBackup puts what the catalog says beside the checkpoints, after each change that
// this process makes, so that everything can be restored from there.
func (s *Server) openBackup(ctx context.Context) error {
	if strings.Contains(s.settings.RemoteURI, dataDirMark) {
		return nil
	}
	objects, err := s.openObjects(ctx, "catalog", s.settings.RemoteURI)
	if err != nil {
		return wrong("remote-uri", "%v", err)
	}
	w := backup.NewWriter(backup.Options{
		Catalog: s.catalog, Store: objects, Prefix: backup.Prefix(s.catalog.ClusterID()), Logger: s.log, Registerer: s.metrics.registry,
	})
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := w.Run(run); err != nil && !errors.Is(err, context.Canceled) {
			s.log.ErrorContext(run, "the catalog is not exported any more", slog.Any("err", err))
		}
	}()
	s.onStop("exports of the catalog", func(ctx context.Context) error {
		cancel()
		<-ended
		ctx, cancel := context.WithTimeout(ctx, lastExportTime)
		defer cancel()
		if err := w.Finish(ctx); err != nil { // the next start writes one
			s.log.WarnContext(ctx, "the last changes of the catalog are not in the object store", slog.Any("err", err))
		}
		return nil
	})
	return nil
}
