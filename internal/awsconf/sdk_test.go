package awsconf

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every region that the linked SDK knows is in the partition that the SDK puts it into.
func TestPartitionIsTheSDKs(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-sdk-go-v2").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "internal/endpoints/awsrulesfn/partitions.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Partitions []struct {
			ID      string                     `json:"id"`
			Regions map[string]json.RawMessage `json:"regions"`
		} `json:"partitions"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	regions := 0
	for _, p := range list.Partitions {
		for region := range p.Regions {
			if strings.HasSuffix(region, "-global") {
				continue // no region that anything is in
			}
			regions++
			if got := Partition(region); got != p.ID {
				t.Errorf("Partition(%q) = %q, and the SDK says %q", region, got, p.ID)
			}
		}
	}
	if len(list.Partitions) < 8 || regions < 40 {
		t.Errorf("the SDK's list has %d partitions and %d regions: is it still the list?", len(list.Partitions), regions)
	}
	if got := Partition("mars-north-1"); got != "aws" {
		t.Errorf("an unknown region is in %q", got)
	}
}
