package keyvalue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/cluster/keyvalue"
	"github.com/millrace/millrace/cluster/natstest"
)

// A commit is applied, and readers are answered that it is seen, whatever the lease of this
// process is at: the two do not wait for each other.
func TestLeaseAndCommitsDoNotLockEachOther(t *testing.T) {
	servers := natstest.StartT(t, 1)
	s := openStore(t, servers, keyvalue.Options{})
	openCatalog(t, s)
	require.NoError(t, s.Lease(t.Context()))
	for range 5 {
		time.Sleep(50 * time.Millisecond) // what the lease is at then does not matter; mostly it waits
		keyvalue.WhileApplying(s, func() {
			keyvalue.RenewNow(s)
			time.Sleep(50 * time.Millisecond)
			require.Eventually(t, func() bool { return keyvalue.CanAnswer(s) }, time.Minute, time.Millisecond)
		})
	}
}
