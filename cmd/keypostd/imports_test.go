package main

import (
	"os/exec"
	"strings"
	"testing"
)

// What faces the internet links nothing that could dial a store, a cloud or a cluster, or write.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 100 {
		t.Fatalf("only %d packages", len(deps))
	}
	const ours = "github.com/keypost/keypost/"
	for _, dep := range deps {
		for _, no := range []string{
			ours + "provision", ours + "issuer/verify", ours + "keystore/kubestore", ours + "keystore/s3store", ours + "keystore/rotation",
			ours + "keystore/storetest", "k8s.io/client-go", "github.com/aws/aws-sdk-go-v2", "testing", "net/http/pprof",
		} {
			if dep == no || strings.HasPrefix(dep, no+"/") {
				t.Errorf("keypostd links %s", dep)
			}
		}
	}
}
