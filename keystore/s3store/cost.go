package s3store

import (
	"fmt"
	"time"
)

const (
	pageSize = 1000            // keys per ListObjectsV2 answer, at most
	month    = 730 * time.Hour // as AWS counts it

	// listPrice is what 1,000 LIST requests cost, in USD: S3 Standard in us-east-1, https://aws.amazon.com/s3/pricing/
	// (2026). Other regions, storage classes and servers differ.
	listPrice = 0.005
)

// MonthlyCost returns in one line what it costs one reader to list a number of objects (key sets, and whatever else lies
// directly under the prefix) every poll for a month. The one GET per change is not in it.
func MonthlyCost(objects int, poll time.Duration) string {
	var requests int64
	if poll > 0 {
		requests = int64(month/poll) * int64(max(1, (objects+pageSize-1)/pageSize))
	}
	return fmt.Sprintf("%d LIST requests a month at one listing every %s; estimate: %.2f USD at %.3f USD per 1,000 requests (S3 Standard, us-east-1)",
		requests, poll, float64(requests)/1000*listPrice, listPrice)
}
