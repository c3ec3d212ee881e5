package router

import (
	"context"

	"github.com/millrace/millrace/errs"
	"github.com/millrace/millrace/storage/shard"
)

// What the owner of a shard does for a router elsewhere; see Remote.

// LookupHere reads the rows of keys in a shard that is here.
func LookupHere(ctx context.Context, sh *shard.Shard, of []BucketKeys, most int64) ([][]byte, error) {
	n := 0
	for _, k := range of {
		n += len(k.Keys)
	}
	out := make([][]byte, 0, n)
	var size int64
	for _, k := range of {
		for lo := 0; lo < len(k.Keys); lo += lookupChunk {
			got, err := sh.Lookup(ctx, k.Bucket, k.Keys[lo:min(lo+lookupChunk, len(k.Keys))])
			if err != nil {
				return nil, err
			}
			for _, row := range got {
				size += int64(len(row))
			}
			if size > most {
				return nil, errs.New(errs.TooLarge, "the rows of %d keys have more than %d bytes; ask for fewer keys at once", n, most)
			}
			out = append(out, got...)
		}
	}
	return out, nil
}

// PrefixesHere reads the rows of prefixes in a shard that is here.
func PrefixesHere(ctx context.Context, sh *shard.Shard, of []BucketPrefix, limit, most int64) ([][][]byte, error) {
	sn, err := sh.Snapshot()
	if err != nil {
		return nil, err
	}
	defer sn.Release()
	out := make([][][]byte, len(of))
	var size int64
	for i, p := range of {
		err := eachOfPrefix(ctx, sn, p, limit, func(row []byte) error {
			if size += int64(len(row)); size > most {
				return tooManyOfPrefixes(most)
			}
			out[i] = append(out[i], append([]byte{}, row...))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
