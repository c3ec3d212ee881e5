package filter

import "bytes"

// likeMatch is TRUE for texts that match a pattern, or with not for the others.
type likeMatch struct {
	col     int
	pattern *pattern
	not     bool
}

func (p likeMatch) cost() int { return costLike }

func (p likeMatch) narrow(b *batch, rows []int32) []int32 {
	return b.run(rows, func(rows []int32) []int32 {
		c := newByteColumn(b.arrays[p.col])
		if prefix, only := p.pattern.prefix(); only {
			return p.narrowPrefix(b, c, rows, prefix)
		}
		if part, only := p.pattern.inside(); only && rows == nil {
			return p.narrowInside(b, c, part)
		}
		rows = b.everyRow(rows)
		n := 0
		for _, i := range rows {
			rows[n] = i
			if p.pattern.match(c.at(i)) != p.not {
				n++
			}
		}
		return rows[:n]
	}, p.col)
}

// narrowPrefix looks at the tail of the prefix first, for the same reason as
// narrowAllEqual.
func (p likeMatch) narrowPrefix(b *batch, c byteColumn, rows []int32, prefix []byte) []int32 {
	rows = b.everyRow(rows)
	want := tail(prefix)
	n := 0
	for _, i := range rows {
		rows[n] = i
		v := c.at(i)
		has := len(v) >= len(prefix)
		if has {
			v = v[:len(prefix)]
			has = tail(v) == want && string(v) == string(prefix)
		}
		if has != p.not {
			n++
		}
	}
	return rows[:n]
}

// narrowInside searches all texts at once, as they lie one behind the other, and
// then finds the row of each hit. A hit across a border is none.
func (p likeMatch) narrowInside(b *batch, c byteColumn, part []byte) []int32 {
	rows := b.take()
	n := 0
	i := int32(0) // the first row without an answer
	upTo := func(end int32) {
		for ; i < end; i++ {
			rows[n] = i
			if p.not {
				n++
			}
		}
	}
	last, row := int32(len(c.offsets)-1), int32(0)
	for from := int(c.offsets[0]); ; {
		hit := bytes.Index(c.data[from:c.offsets[last]], part)
		if hit < 0 {
			break
		}
		from += hit
		for int(c.offsets[row+1]) <= from {
			row++
		}
		if end := int(c.offsets[row+1]); from+len(part) > end {
			from = end // later hits in this row would cross its end too
			continue
		}
		upTo(row)
		if i++; !p.not {
			rows[n] = row
			n++
		}
		row, from = i, int(c.offsets[i])
	}
	upTo(last)
	return rows[:n]
}
