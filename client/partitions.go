package client

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/millrace/millrace/openapi"
)

// Partitions lists the partitions of the table, by name.
func (t *Table) Partitions(ctx context.Context) iter.Seq2[openapi.Partition, error] {
	return pages(func(token *string) ([]openapi.Partition, string, error) {
		var out openapi.PartitionList
		resp, err := t.c.api.ListPartitions(ctx, t.database, t.base, &openapi.ListPartitionsParams{PageToken: token})
		err = decode(resp, err, &out)
		return out.Partitions, out.NextPageToken, err
	})
}

// CreatePartition creates a partition: values is its name as a JSON string, or the
// JSON object of its column values. With ifNotExists one that is there is returned.
func (t *Table) CreatePartition(ctx context.Context, values json.RawMessage, ifNotExists bool) (openapi.Partition, error) {
	var out openapi.Partition
	resp, err := t.c.api.CreatePartition(ctx, t.database, t.base, &openapi.CreatePartitionParams{IfNotExists: flag(ifNotExists)}, openapi.CreatePartition{Partition: values})
	return out, decode(resp, err, &out)
}

// DropPartition drops a partition and its rows; with ifExists it need not be there.
func (t *Table) DropPartition(ctx context.Context, name string, ifExists bool) error {
	resp, err := t.c.api.DropPartition(ctx, t.database, t.base, &openapi.DropPartitionParams{Name: name, IfExists: flag(ifExists)})
	return decode(resp, err, nil)
}
