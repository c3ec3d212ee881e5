package e2e

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

const widget = `{"product_id":99,"name":"Widget","category":"tools","price_cents":1499}`

// X5 through REST: two producers own different columns of one row; whoever comes first, neither clobbers the other.
func TestX5REST(t *testing.T) {
	t.Parallel()
	s := shared(t)
	db := newDB(t, s)
	price := func(tb table) {
		assert.NoError(t, tb.tryWrite(`[{"product_id":99,"price_cents":1499}]`, `"columns":["product_id","price_cents"]`))
	}
	catalogue := func(tb table) {
		assert.NoError(t, tb.tryWrite(`[{"product_id":99,"name":"Widget","category":"tools"}]`, `"columns":["product_id","name","category"]`))
	}
	first := create(t, s, db, "price_first", productColumns, "product_id", 4)
	price(first)
	require.Equal(t, []string{`{"product_id":99,"name":null,"category":null,"price_cents":1499}`}, first.lookup(t, `[{"product_id":99}]`))
	catalogue(first)
	require.Equal(t, []string{widget}, first.lookup(t, `[{"product_id":99}]`))

	second := create(t, s, db, "catalogue_first", productColumns, "product_id", 4)
	catalogue(second)
	price(second)
	require.Equal(t, []string{widget}, second.lookup(t, `[{"product_id":99}]`))

	both := create(t, s, db, "at_once", productColumns, "product_id", 4)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { price(both) })
		wg.Go(func() { catalogue(both) })
	}
	wg.Wait()
	require.Equal(t, []string{widget}, both.lookup(t, `[{"product_id":99}]`))

	s.ok(t, "PATCH", both.path()+"/rows/99", `{"category":null}`, "Content-Type", "application/merge-patch+json")
	require.Equal(t, []string{`{"product_id":99,"name":"Widget","category":null,"price_cents":1499}`}, both.lookup(t, `[{"product_id":99}]`))
}

// X5 through Flight: partial streams carry the columns of their schema and no others.
func TestX5Flight(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "product_dim", productColumns, "product_id", 4)
	c := s.dial(t)
	partial := command(t, obj{"op": "put", "table": tb.full(), "mode": "upsert", "partial": true})
	_, err := c.putAll(t, partial, batch(t, schemaOf("product_id long, price_cents long"), `[{"product_id":99,"price_cents":1499}]`))
	require.NoError(t, err)
	_, err = c.putAll(t, partial, batch(t, schemaOf("product_id long, category string, name string"), `[{"product_id":99,"name":"Widget","category":"tools"}]`))
	require.NoError(t, err)
	require.Equal(t, []string{widget}, tb.lookup(t, `[{"product_id":99}]`))
	_, err = c.putAll(t, partial, batch(t, schemaOf("product_id long, name string"), `[{"product_id":99,"name":null}]`))
	require.NoError(t, err)
	require.Equal(t, []string{`{"product_id":99,"name":null,"category":"tools","price_cents":1499}`}, tb.lookup(t, `[{"product_id":99}]`))
	_, err = c.putAll(t, partial, batch(t, schemaOf("name string"), `[{"name":"x"}]`))
	refused(t, err, codes.InvalidArgument, "missing_key")
}

// X5 through the command line: put --columns is a partial update.
func TestX5CLI(t *testing.T) {
	t.Parallel()
	s := shared(t)
	tb := create(t, s, newDB(t, s), "product_dim", productColumns, "product_id", 4)
	s.cliOK(t, "put", tb.full(), "--columns", "product_id,price_cents", "--file", tempFile(t, "p.ndjson", `{"product_id":99,"price_cents":1499}`+"\n"))
	s.cliOK(t, "put", tb.full(), "--columns", "product_id,name,category", "--file", tempFile(t, "c.csv", "product_id,name,category\n99,Widget,tools\n"))
	require.Equal(t, []string{widget}, tb.lookup(t, `[{"product_id":99}]`))
}
