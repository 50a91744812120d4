package signer

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keypost/keypost/keystore"
)

// tokens counts the tokens that were signed since this process began and that have not expired, by key and minute of expiry.
type tokens struct {
	mu  sync.Mutex
	all map[keystore.KeyID]map[int64]int
}

const minuteSeconds = 60

// expiry returns the claim exp of a token's second segment, in seconds since 1970.
func expiry(claims string) (int64, error) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(claims)
	if err != nil || strings.ContainsAny(claims, "\r\n") { // which the decoder passes over
		return 0, errors.New("the claims are not base64url")
	}
	var c struct {
		Exp int64 `json:"exp"`
	}
	if json.Unmarshal(text, &c) != nil || c.Exp <= 0 {
		return 0, errors.New("the claims are not JSON with a time of expiry")
	}
	return c.Exp, nil
}

func (t *tokens) add(id keystore.KeyID, exp int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[keystore.KeyID]map[int64]int{}
	}
	if t.all[id] == nil {
		t.all[id] = map[int64]int{}
	}
	t.all[id][(exp+minuteSeconds-1)/minuteSeconds]++
}

// alive returns how many tokens of each key are alive, and until when, and forgets the others.
func (t *tokens) alive(now time.Time) (count map[keystore.KeyID]int, latest map[keystore.KeyID]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count, latest = map[keystore.KeyID]int{}, map[keystore.KeyID]int64{}
	for id, minutes := range t.all {
		for minute, n := range minutes {
			if minute*minuteSeconds < now.Unix() {
				delete(minutes, minute)
				continue
			}
			count[id] += n
			latest[id] = max(latest[id], minute*minuteSeconds)
		}
		if len(minutes) == 0 {
			delete(t.all, id)
		}
	}
	return count, latest
}

var (
	aliveDesc = prometheus.NewDesc("keypost_signer_tokens_alive",
		"Tokens that this process has signed and that have not expired, by key. It counts from keypost_signer_start_time_seconds.", []string{"kid"}, nil)
	latestDesc = prometheus.NewDesc("keypost_signer_tokens_latest_expiry_timestamp_seconds",
		"When the last of these tokens expires.", []string{"kid"}, nil)
)

func (t *tokens) collect(now time.Time, ch chan<- prometheus.Metric) {
	count, latest := t.alive(now)
	for id, n := range count {
		ch <- prometheus.MustNewConstMetric(aliveDesc, prometheus.GaugeValue, float64(n), string(id))
		ch <- prometheus.MustNewConstMetric(latestDesc, prometheus.GaugeValue, float64(latest[id]), string(id))
	}
}
