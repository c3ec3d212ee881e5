package faultproxy

import (
	"math/rand/v2"
	"net/http"
	"time"
)

// Fault is what happens to a request.
type Fault int

// The faults.
const (
	None Fault = iota
	// Delay forwards the request after a while.
	Delay
	// SlowDown answers 503 without forwarding, as S3 does under load.
	SlowDown
	// InternalError answers 500 without forwarding.
	InternalError
	// Reset breaks the connection without forwarding.
	Reset
	// Truncate forwards, and breaks the connection in the middle of the answer's body, or
	// before the answer when it has none.
	Truncate
	// Corrupt forwards, and changes a byte of the answer's body.
	Corrupt
	// LoseAnswer forwards, and breaks the connection instead of answering.
	LoseAnswer
	// LoseAnswerSoftly forwards, and answers 500 all the same.
	LoseAnswerSoftly
	// Hang forwards, and answers nothing until the client gives up.
	Hang
	// Twice forwards twice, as a proxy does that tries again, and gives the second answer.
	Twice

	faults // how many there are
)

// Schedule says what happens to the n-th request, from 0.
type Schedule func(n int, r *http.Request) Fault

// Rates are how many of a thousand requests meet each fault.
type Rates map[Fault]int

// Seeded is a schedule by chance.
func Seeded(seed uint64, rates Rates) Schedule {
	return func(n int, _ *http.Request) Fault {
		at := rand.New(rand.NewPCG(seed, uint64(n))).IntN(1000)
		for f := None + 1; f < faults; f++ {
			if at -= rates[f]; at < 0 {
				return f
			}
		}
		return None
	}
}

// Only has a schedule apply to some requests.
func Only(which func(*http.Request) bool, s Schedule) Schedule {
	return func(n int, r *http.Request) Fault {
		if !which(r) {
			return None
		}
		return s(n, r)
	}
}

// Always is a schedule of one fault.
func Always(f Fault) Schedule {
	return func(int, *http.Request) Fault { return f }
}

// DefaultDelay is that of Delay unless the proxy has another one.
const DefaultDelay = 50 * time.Millisecond
