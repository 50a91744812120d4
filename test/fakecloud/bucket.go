package fakecloud

import (
	"math"
	"time"
)

// Bucket is a token bucket that is full at first: it holds what comes in a second, and at least one. It is for one caller at a time.
type Bucket struct {
	Rate  float64 // tokens a second; 0 never runs dry
	spent float64
	last  time.Time
}

// Take spends a token, or says after which time there is one.
func (b *Bucket) Take(now time.Time) (time.Duration, bool) {
	if b.Rate == 0 {
		return 0, true
	}
	b.spent = math.Max(0, b.spent-now.Sub(b.last).Seconds()*b.Rate)
	b.last = now
	if over := b.spent + 1 - math.Max(b.Rate, 1); over > 0 {
		return time.Duration(math.Ceil(over/b.Rate*1000)) * time.Millisecond, false
	}
	b.spent++
	return 0, true
}
