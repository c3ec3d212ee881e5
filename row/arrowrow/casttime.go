package arrowrow

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	millrace "github.com/millrace/millrace"
	"github.com/millrace/millrace/errs"
)

const (
	secondsPerDay = 86400
	// The days from 1970-01-01 to 0001-01-01 and to 9999-12-31.
	firstDay = -719162
	lastDay  = 2932896
)

// perSecond is how many of an Arrow unit are a second.
func perSecond(u arrow.TimeUnit) int64 {
	return [...]int64{1, 1e3, 1e6, 1e9}[u]
}

// timeCast casts between units, and judges ranges and precision.
type timeCast struct {
	up, down    int64 // factors, one of which is 1
	least, most int64 // of the result
	step        int64 // the result is a multiple of it
}

// timeKernel casts dates to DATE, times to TIME and timestamps to timestamps, with
// a zone if and only if the type is local to one.
func timeKernel(in arrow.DataType, t millrace.DataType) kernel {
	tc := timeCast{up: 1, down: 1, step: 1}
	switch it := in.(type) {
	case *arrow.Date32Type, *arrow.Date64Type:
		if t.Kind != millrace.Date {
			return nil
		}
		tc.least, tc.most = firstDay, lastDay
		if in.ID() == arrow.DATE64 {
			tc.down = secondsPerDay * 1000
		}
	case *arrow.Time32Type:
		if t.Kind != millrace.Time {
			return nil
		}
		tc.time(perSecond(it.Unit), t)
	case *arrow.Time64Type:
		if t.Kind != millrace.Time {
			return nil
		}
		tc.time(perSecond(it.Unit), t)
	case *arrow.TimestampType:
		if t.Kind != millrace.Timestamp && t.Kind != millrace.TimestampLTZ || (t.Kind == millrace.TimestampLTZ) != (it.TimeZone != "") {
			return nil
		}
		tc.timestamp(perSecond(it.Unit), t)
	default:
		return nil
	}
	if in.(arrow.FixedWidthDataType).Bytes() == 4 {
		return func(x *run, c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
			return castTime[int32](x, c, in, at, tc)
		}
	}
	return func(x *run, c *cast, in arrow.ArrayData, at *place) (arrow.ArrayData, error) {
		return castTime[int64](x, c, in, at, tc)
	}
}

// units sets the factors from one unit to another and the step of a precision.
func (tc *timeCast) units(from, to int64, precision int) {
	if from < to {
		tc.up = to / from
	} else {
		tc.down = from / to
	}
	tc.step = to
	for range precision {
		tc.step /= 10
	}
}

func (tc *timeCast) time(from int64, t millrace.DataType) {
	to := int64(1e9)
	switch {
	case t.Precision <= 3:
		to = 1e3
	case t.Precision <= 6:
		to = 1e6
	}
	tc.units(from, to, t.Precision)
	tc.least, tc.most = 0, secondsPerDay*to-1
}

func (tc *timeCast) timestamp(from int64, t millrace.DataType) {
	to := int64(1e9)
	switch {
	case t.Precision == 0:
		to = 1
	case t.Precision <= 3:
		to = 1e3
	case t.Precision <= 6:
		to = 1e6
	}
	tc.units(from, to, t.Precision)
	tc.least, tc.most = math.MinInt64, math.MaxInt64
	if to < 1e9 {
		tc.least, tc.most = firstDay*secondsPerDay*to, (lastDay+1)*secondsPerDay*to-1
	}
}

// one casts one value.
func (tc *timeCast) one(v int64) (out int64, inRange, exact bool) {
	switch {
	case tc.up > 1:
		if v > math.MaxInt64/tc.up || v < math.MinInt64/tc.up {
			return 0, false, true
		}
		v *= tc.up
	case tc.down > 1:
		q := v / tc.down
		if q*tc.down != v {
			return 0, true, false
		}
		v = q
	}
	return v, v >= tc.least && v <= tc.most, tc.step == 1 || v%tc.step == 0
}

// castTime casts values of type S. When they need no change they are only judged.
func castTime[S int32 | int64](x *run, c *cast, in arrow.ArrayData, at *place, tc timeCast) (arrow.ArrayData, error) {
	judge := func(i int, v S) int64 {
		t, inRange, exact := tc.one(int64(v))
		if inRange && exact {
			return t
		}
		if !isNull(in, i) && !x.counted(at, i) {
			why := "%d (%s) is out of the range of %s"
			if inRange {
				why = "%d (%s) has more digits than %s holds"
			}
			x.fail(at, i, errs.ValueOutOfRange, why, v, in.DataType(), c.column.Type)
		}
		return 0
	}
	src := values[S](in)
	wide := c.out.(arrow.FixedWidthDataType).Bytes() == 8
	switch {
	case tc.up == 1 && tc.down == 1:
		for i, v := range src {
			if int64(v) < tc.least || int64(v) > tc.most || tc.step > 1 {
				judge(i, v)
			}
		}
		return castSame(x, c, in, at)
	case wide:
		out, dst, err := room[int64](x, in.Len())
		if err != nil {
			return nil, err
		}
		for i, v := range src {
			dst[i] = judge(i, v)
		}
		return c.fresh(in, out), nil
	default:
		out, dst, err := room[int32](x, in.Len())
		if err != nil {
			return nil, err
		}
		for i, v := range src {
			dst[i] = int32(judge(i, v))
		}
		return c.fresh(in, out), nil
	}
}
