// Package imports holds the table "who may import whom" of the design against the module as it is.
package imports

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/keypost/keypost"

// everything stands for every room of the module in the table.
const everything = "everything"

// tableFile has the table of rooms that this test holds the module to.
const tableFile = "../../.github/CONTRIBUTING.md"

// rooms reads the table: which of our packages a package may import. A package that is not in it has no room.
func rooms(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	table := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9/-]+(?:/\\.\\.\\.)?)` \\|[^|]*\\| ([^|]*) \\|$").FindAllStringSubmatch(string(text), -1) {
		table[row[1]] = strings.Split(row[2], ", ")
	}
	if len(table) < 15 {
		t.Fatalf("%s has a table of %d rooms only", tableFile, len(table))
	}
	return table
}

// A leaf knows no word of keypost's, so that every room may import it.
const leaves = "internal/"

// never says what a program must not link, directly or through others.
var never = map[string][]string{
	"cmd/keypostd": {
		module + "/provision", module + "/internal/signingkey", module + "/issuer/verify", module + "/keystore/kubestore", module + "/keystore/s3store",
		module + "/keystore/storetest", "k8s.io/client-go", "github.com/aws/aws-sdk-go-v2", "google.golang.org/api", "golang.org/x/oauth2", "github.com/Azure", "testing", "net/http/pprof",
	},
	"cmd/keypost-signer": {
		module + "/provision", module + "/issuer/verify", module + "/issuer/listen", module + "/keystore/kubestore", module + "/keystore/s3store",
		module + "/keystore/storetest", "k8s.io/client-go", "google.golang.org/api", "golang.org/x/oauth2", "github.com/Azure", "testing", "net/http/pprof",
	},
	"cmd/keypost": {module + "/issuer/signer", module + "/issuer/listen", module + "/keystore/storetest", "golang.org/x/crypto/acme", "testing"},
}

// users are the only packages that import a cloud's SDK.
var users = map[string]string{
	"github.com/aws/aws-sdk-go-v2/service/iam": "provision/awsiam",
	"github.com/aws/aws-sdk-go-v2/service/s3":  "keystore/s3store",
	"github.com/aws/aws-sdk-go-v2/service/kms": "issuer/signer/awskms",
	"google.golang.org/api":                    "provision/gcp/rest",
	"golang.org/x/oauth2":                      "provision/gcp",
	"github.com/Azure":                         "provision/azure",
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
	rooms := rooms(t)
	seen := map[string]bool{}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if name == "test" || strings.HasPrefix(name, "test/") {
			continue
		}
		row := rowOf(rooms, name)
		may, known := rooms[row]
		if !known {
			t.Errorf("%s has no line in the table of rooms in %s", name, tableFile)
			continue
		}
		seen[row] = true
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
	if len(seen) != len(rooms) {
		t.Errorf("the table has %d rooms and the module %d of them", len(rooms), len(seen))
	}
}

// rowOf returns the row of a package: its own, or one that ends in "/..." and stands for every package below.
func rowOf(rooms map[string][]string, name string) string {
	if _, own := rooms[name]; own {
		return name
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, all := rooms[dir+"/..."]; all {
			return dir + "/..."
		}
	}
	return name
}

func TestWhoUsesAnSDK(t *testing.T) {
	used := 0
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(name, "test/") {
			continue
		}
		for _, i := range p.Imports {
			for sdk, user := range users {
				if i != sdk && !strings.HasPrefix(i, sdk+"/") {
					continue
				}
				if used++; name != user && !strings.HasPrefix(name, user+"/") {
					t.Errorf("%s imports %s, which only %s does", name, i, user)
				}
			}
		}
	}
	if used == 0 {
		t.Error("no SDK was looked at")
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
