package objstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/objstore"
	"github.com/millrace/millrace/objstore/objstoretest"
)

func opener(uri string, o objstore.Options) func(*testing.T) objstore.Store {
	return func(t *testing.T) objstore.Store {
		t.Helper()
		s, err := objstore.Open(t.Context(), uri, o)
		require.NoError(t, err)
		return s
	}
}

// A folder of this machine keeps the contract.
func TestFolder(t *testing.T) {
	objstoretest.Run(t, opener("file://"+t.TempDir()+"/lake", objstore.Options{}), 20<<20)
}

// In pieces of 5 MiB, the least that S3 takes, so that a large object is of several.
func s3Options(server *objstoretest.Server) objstore.Options {
	o := objstore.Options{S3: server.Settings()}
	o.S3.PartBytes, o.S3.Uploads = 5<<20, 2
	return o
}

// S3 by a server in this process.
func TestFakeS3(t *testing.T) {
	server := objstoretest.StartFake(t)
	objstoretest.Run(t, opener(server.URI("a/prefix"), s3Options(server)), 21<<20)
}

// S3 by a server that people use.
func TestGateway(t *testing.T) {
	server := objstoretest.StartGateway(t)
	objstoretest.Run(t, opener(server.URI("a/prefix"), s3Options(server)), 21<<20)
}
