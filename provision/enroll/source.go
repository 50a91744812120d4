package enroll

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/cluster"
)

// Dir is a directory of kubeconfigs. Each file is a cluster, called what the file is up to its first dot. Files whose names begin with a
// dot are none, such as those of a mounted Secret.
type Dir string

// List implements [Source].
func (d Dir) List(context.Context) ([]Cluster, error) {
	files, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	var all []Cluster
	for _, f := range files {
		name, _, _ := strings.Cut(f.Name(), ".")
		if name == "" {
			continue
		}
		c := Cluster{Name: keystore.Name(name)}
		if c.Err = c.Name.Check(); c.Err == nil {
			c.load(filepath.Join(string(d), f.Name()))
		}
		all = append(all, c)
	}
	return all, nil
}

func (c *Cluster) load(file string) {
	data, err := regular.Read(file, kubeapi.MaxKubeconfig)
	if err == nil {
		c.Access, err = kubeapi.Inline(data)
	}
	if err != nil {
		c.Err = fmt.Errorf("its kubeconfig %s: %w", filepath.Base(file), err)
	}
}

// Own is the cluster in whose pod the program runs, under a name that somebody gives it.
type Own keystore.Name

// List implements [Source].
func (o Own) List(context.Context) ([]Cluster, error) {
	access, err := cluster.Own()
	if err != nil {
		return nil, err
	}
	return []Cluster{{Name: keystore.Name(o), Access: access}}, nil
}
