// Package imports holds the table "who may import whom" of the design against the module as it is.
package imports

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/keypost/keypost"

// everything stands for every room of the module.
const everything = "*"

// rooms says which of our packages a package may import. A package that is not here has no room: give it one.
var rooms = map[string][]string{
	"cmd/keypostd":          {"keystore", "keystore/filestore", "issuer", "issuer/listen"},
	"cmd/keypost":           {everything},
	"keystore":              {},
	"keystore/filestore":    {"keystore"},
	"keystore/kubestore":    {"keystore"},
	"keystore/s3store":      {"keystore"},
	"keystore/rotation":     {"keystore"},
	"keystore/storetest":    {"keystore"},
	"issuer":                {"keystore"},
	"issuer/listen":         {},
	"issuer/verify":         {"keystore"},
	"provision":             {"keystore"},
	"provision/signingkey":  {"keystore"},
	"provision/credrequest": {},
	"provision/awsiam":      {"provision", "issuer/verify"},
	"provision/cluster":     {"keystore", "keystore/rotation"},
	"internal/text":         {},
	"internal/awsconf":      {},
}

// A leaf knows no word of keypost's, so that every room may import it.
const leaves = "internal/"

// never says what a program must not link, directly or through others.
var never = map[string][]string{
	"cmd/keypostd": {
		module + "/provision", module + "/issuer/verify", module + "/keystore/kubestore", module + "/keystore/s3store", module + "/keystore/rotation",
		module + "/keystore/storetest", "k8s.io/client-go", "github.com/aws/aws-sdk-go-v2", "testing",
	},
	"cmd/keypost": {module + "/issuer/listen", module + "/keystore/storetest", "golang.org/x/crypto/acme", "testing"},
}

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestWhoImportsWhom(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if name == "test" || strings.HasPrefix(name, "test/") {
			continue
		}
		may, known := rooms[name]
		if !known {
			t.Errorf("%s has no line in the table of rooms", name)
			continue
		}
		for _, i := range p.Imports {
			ours, ok := strings.CutPrefix(i, module+"/")
			if !ok || slices.Contains(may, ours) || slices.Contains(may, everything) || strings.HasPrefix(ours, leaves) {
				continue
			}
			t.Errorf("%s imports %s; it may import %q", name, ours, may)
		}
		if slices.Contains(p.Imports, "testing") && name != "keystore/storetest" {
			t.Errorf("%s imports testing, whose flags would be in the program", name)
		}
	}
}

func TestWhatProgramsLink(t *testing.T) {
	linked := 0
	for _, p := range packages(t) {
		for _, no := range never[strings.TrimPrefix(p.ImportPath, module+"/")] {
			linked++
			for _, dep := range p.Deps {
				if dep == no || strings.HasPrefix(dep, no+"/") {
					t.Errorf("%s links %s", path.Base(p.ImportPath), dep)
				}
			}
		}
	}
	if linked == 0 {
		t.Error("no program was looked at")
	}
}
