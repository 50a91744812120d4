package shield

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keypost/keypost/test/authority"
)

var day = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// root is the PEM text of a CA that expires so many days after day.
func root(t *testing.T, name string, days int) string {
	t.Helper()
	c := authority.CA(name)
	c.NotBefore, c.NotAfter = day.AddDate(-1, 0, 0), day.AddDate(0, 0, days)
	return string(authority.ChainPEM(authority.Certify(t, nil, c)))
}

func TestExpiry(t *testing.T) {
	const other = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
	const broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	c := parseCAs([]byte("# ours\n" + root(t, "new\n", 30) + other + broken + root(t, "old", 10)))
	if c == nil || len(c.certs) != 2 {
		t.Fatalf("read %+v", c)
	}
	old := `"CN=old" expired at 2030-01-11T00:00:00Z`
	for after, want := range map[int][]string{9: nil, 10: nil, 11: {old}, 31: {`"CN=new\n" expired at 2030-01-31T00:00:00Z`, old}} {
		which, all := c.expired(day.AddDate(0, 0, after))
		if !reflect.DeepEqual(which, want) || all != (len(want) == 2) {
			t.Errorf("after %d days: %v %q", after, all, which)
		}
	}
	want := fmt.Sprintf(`# HELP keypost_shield_client_ca_not_after_timestamp_seconds When the first and the last of the CAs of the shield's client certificates expire: with the last one nobody gets in any more.
# TYPE keypost_shield_client_ca_not_after_timestamp_seconds gauge
keypost_shield_client_ca_not_after_timestamp_seconds{which="first"} %d
keypost_shield_client_ca_not_after_timestamp_seconds{which="last"} %d
`, day.AddDate(0, 0, 10).Unix(), day.AddDate(0, 0, 30).Unix())
	if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if parseCAs([]byte(other+broken)) != nil {
		t.Error("no certificate was read as one")
	}
}
