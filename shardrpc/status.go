package shardrpc

import (
	"encoding/binary"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/storage/shard"
)

func appendStatus(b []byte, st *shard.Status) []byte {
	for _, v := range []uint64{uint64(st.ID), uint64(st.Epoch), uint64(st.LSN), uint64(st.CheckpointLSN), uint64(st.Buckets)} {
		b = binary.AppendUvarint(b, v)
	}
	for _, err := range []error{st.Err, st.Trouble} {
		b = appendBool(b, err != nil)
		if err != nil {
			b = appendFailure(b, err)
		}
	}
	return b
}

func (d *decoder) status() shard.Status {
	st := shard.Status{
		ID: millrace.ShardID(d.within(1<<16 - 1)), Epoch: millrace.Epoch(d.uint()), LSN: millrace.LSN(d.uint()),
		CheckpointLSN: millrace.LSN(d.uint()), Buckets: int(d.within(1 << 40)),
	}
	for _, err := range []*error{&st.Err, &st.Trouble} {
		if d.bool() {
			*err = d.failure()
		}
	}
	return st
}
