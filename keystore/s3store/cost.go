package s3store

import (
	"fmt"
	"time"
)

const (
	pageSize = 1000            // keys per ListObjectsV2 answer, at most
	month    = 730 * time.Hour // as AWS counts it

	// ListPrice is what 1,000 LIST requests cost, in USD: S3 Standard in us-east-1, https://aws.amazon.com/s3/pricing/
	// (2026). Other regions, storage classes and servers differ.
	ListPrice = 0.005
)

// Cost is the cost of polling a bucket for a month, for one reader, without the one GET per change.
type Cost struct {
	Poll     time.Duration
	Requests int64   // LIST requests
	USD      float64 // an estimate: Requests at ListPrice
}

// MonthlyCost counts the requests of listing a number of objects (key sets, and whatever else lies directly under the
// prefix) every poll.
func MonthlyCost(objects int, poll time.Duration) Cost {
	if poll <= 0 {
		return Cost{}
	}
	pages := max(1, (objects+pageSize-1)/pageSize)
	requests := int64(month/poll) * int64(pages)
	return Cost{Poll: poll, Requests: requests, USD: float64(requests) / 1000 * ListPrice}
}

// String returns the cost in one line.
func (c Cost) String() string {
	return fmt.Sprintf("%d LIST requests a month at one listing every %s; estimate: %.2f USD "+
		"at %.3f USD per 1,000 requests (S3 Standard, us-east-1)", c.Requests, c.Poll, c.USD, ListPrice)
}
