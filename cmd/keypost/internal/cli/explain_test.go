package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
)

// Nobody waits 68 years: what an answer allowed is forgotten long before.
func TestHintAtACachesGate(t *testing.T) {
	for edge, want := range map[time.Duration]string{
		time.Hour:                "try again at 2094-01-01T00:00:00Z",
		31 * 24 * time.Hour:      "what answers allowed is forgotten 31 days after it was seen last",
		1 << 31 * time.Second:    "what answers allowed is forgotten 31 days after it was seen last",
		time.Duration(1<<63 - 1): "what answers allowed is forgotten 31 days after it was seen last",
	} {
		gate := &keystore.NotYetError{Step: "promote", Gate: keystore.GateCaches, Opens: time.Date(2094, 1, 1, 0, 0, 0, 0, time.UTC), Terms: []keystore.Term{{What: "edge", Duration: edge}, {What: "client", Duration: edge}, {What: "clocks", Duration: 1}}}
		for _, err := range []error{explainedWrite(gate), (&Factory{}).AtGate(gate, keystore.KeySet{})} {
			if h, _ := errors.AsType[*HintedError](err); h == nil || !strings.Contains(fmt.Sprintf(h.format, h.args...), want) {
				t.Errorf("%v: %v; want %q", edge, h, want)
			}
		}
	}
}
