package sql_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// modelRow is a row of the model; nil is NULL.
type modelRow struct {
	id   int
	g    *string
	h    *int
	n    *int64
	d    *big.Int // hundredths
	flag *bool
}

func some[T any](rng *rand.Rand, v T) *T {
	if rng.IntN(4) == 0 {
		return nil
	}
	return &v
}

func literal[T any](v *T, form string) string {
	if v == nil {
		return "NULL"
	}
	return fmt.Sprintf(form, *v)
}

func (r *modelRow) values() string {
	d := "NULL"
	if r.d != nil {
		d = new(big.Rat).SetFrac(r.d, big.NewInt(100)).FloatString(2)
	}
	return fmt.Sprintf("(%d, %s, %s, %s, %s, %s)", r.id, literal(r.g, "'%s'"), literal(r.h, "%d"), literal(r.n, "%d"), d, literal(r.flag, "%v"))
}

// modelGroup is what the model knows of a group.
type modelGroup struct {
	key         string // the JSON of its columns
	rows, n     int64
	sum, sumD   *big.Int
	minN, maxN  *int64
	minG, maxG  *string
	nonNullD, f int64
}

func (m *modelGroup) add(r *modelRow) {
	m.rows++
	if r.n != nil {
		m.n++
		m.sum.Add(m.sum, big.NewInt(*r.n))
		m.minN, m.maxN = lower(m.minN, r.n), higher(m.maxN, r.n)
	}
	if r.d != nil {
		m.nonNullD++
		m.sumD.Add(m.sumD, r.d)
	}
	if r.flag != nil {
		m.f++
	}
	if r.g != nil {
		m.minG, m.maxG = lower(m.minG, r.g), higher(m.maxG, r.g)
	}
}

func lower[T cmp.Ordered](a, b *T) *T {
	if a == nil || *b < *a {
		return b
	}
	return a
}

func higher[T cmp.Ordered](a, b *T) *T {
	if a == nil || *b > *a {
		return b
	}
	return a
}

// row is the group's row of the answer: key, COUNT(*), COUNT(flag), SUM(n), AVG(n), SUM(d), AVG(d), MIN(n), MAX(n), MIN(g), MAX(g).
func (m *modelGroup) row(t *testing.T) string {
	text := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return string(b)
	}
	sum, avg, sumD, avgD := "null", "null", "null", "null"
	if m.n > 0 {
		sum = m.sum.String()
		f, _ := new(big.Rat).SetFrac(m.sum, big.NewInt(m.n)).Float64()
		avg = text(f)
	}
	if m.nonNullD > 0 {
		sumD = `"` + new(big.Rat).SetFrac(m.sumD, big.NewInt(100)).FloatString(2) + `"`
		avgD = `"` + new(big.Rat).SetFrac(m.sumD, big.NewInt(100*m.nonNullD)).FloatString(6) + `"` // halves away from zero
		if strings.Trim(avgD, `"-0.`) == "" {
			avgD = `"0.000000"`
		}
	}
	return fmt.Sprintf("[%s%d,%d,%s,%s,%s,%s,%s,%s,%s,%s]", m.key, m.rows, m.f, sum, avg, sumD, avgD, text(m.minN), text(m.maxN), text(m.minG), text(m.maxG))
}

// Aggregates and groups over random rows, rewritten and deleted in between, are what a model without columns, batches or buckets makes of
// them. A seed that fails is printed.
func TestModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 7))
	w := newWorld(t)
	w.exec("CREATE TABLE t (id INT, g STRING, h INT, n BIGINT, d DECIMAL(20,2), flag BOOLEAN, PRIMARY KEY (id)) WITH ('bucket.num' = '3')")
	live := map[int]*modelRow{}
	for round := range 12 {
		var values []string
		for range 1 + rng.IntN(400) {
			r := &modelRow{
				id: rng.IntN(600), g: some(rng, []string{"", "a", "ä", "b", "Z"}[rng.IntN(5)]), h: some(rng, rng.IntN(4)),
				n: some(rng, rng.Int64N(1<<53)-1<<52), flag: some(rng, rng.IntN(2) == 0),
			}
			if d := some(rng, rng.Int64N(2e12)-1e12); d != nil {
				r.d = big.NewInt(*d)
			}
			live[r.id] = r
			values = append(values, r.values())
		}
		w.exec("INSERT INTO t VALUES " + strings.Join(values, ", "))
		var gone []string
		for range rng.IntN(50) {
			id := rng.IntN(600)
			delete(live, id)
			gone = append(gone, fmt.Sprint(id))
		}
		if gone != nil {
			w.exec("DELETE FROM t WHERE id IN (" + strings.Join(gone, ", ") + ")")
		}
		least := rng.IntN(300)
		for _, by := range [][]string{nil, {"g"}, {"h"}, {"flag", "h"}, {"h", "g", "flag"}} {
			groups := map[string]*modelGroup{}
			if by == nil {
				groups[""] = &modelGroup{sum: new(big.Int), sumD: new(big.Int)}
			}
			for _, r := range live {
				if r.id < least {
					continue
				}
				key := ""
				for _, c := range by {
					b, err := json.Marshal(map[string]any{"g": r.g, "h": r.h, "flag": r.flag}[c])
					require.NoError(t, err)
					key += string(b) + ","
				}
				m := groups[key]
				if m == nil {
					m = &modelGroup{key: key, sum: new(big.Int), sumD: new(big.Int)}
					groups[key] = m
				}
				m.add(r)
			}
			var want []string
			for _, m := range groups {
				want = append(want, m.row(t))
			}
			text := "SELECT " + strings.Join(append(slices.Clone(by), "COUNT(*), COUNT(flag), SUM(n), AVG(n), SUM(d), AVG(d), MIN(n), MAX(n), MIN(g), MAX(g) FROM t WHERE id >= "+fmt.Sprint(least)), ", ")
			if by != nil {
				text += " GROUP BY " + strings.Join(by, ", ")
			}
			got := strings.Split(strings.TrimSpace(w.exec(text)), "\n")
			if got[0] == "" {
				got = nil
			}
			require.ElementsMatch(t, want, got, "round %d: %s", round, text)
		}
	}
}
