package cloud_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/provision/cloud"
)

func api(onWait func(cloud.Wait)) cloud.API {
	if onWait == nil {
		onWait = func(cloud.Wait) {}
	}
	return cloud.API{Name: "IAM", Consistency: 2 * time.Minute, CallTime: 5 * time.Minute, OnWait: onWait}
}

// Whatever takes longer than a moment is told every other second, each time with the latest reason.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		p := api(func(w cloud.Wait) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, w.String())
		}).Await("iam:GetRole")
		time.Sleep(11 * time.Second)
		p.Because(errors.New("rate\nexceeded"))
		p.Because(nil)
		time.Sleep(4 * time.Second)
		p.Stop()
		time.Sleep(time.Minute)
		want := []string{"iam:GetRole (2s so far): no answer yet", "iam:GetRole (4s so far): no answer yet", "iam:GetRole (6s so far): no answer yet",
			"iam:GetRole (8s so far): no answer yet", "iam:GetRole takes long (10s so far): no answer yet", "iam:GetRole takes long (12s so far): rate exceeded",
			"iam:GetRole takes long (14s so far): rate exceeded"}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}
