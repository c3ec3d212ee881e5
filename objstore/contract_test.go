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
