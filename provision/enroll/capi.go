package enroll

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/keystore"
)

// ClusterAPI are the Cluster objects of Cluster API, with their kubeconfig Secrets. It needs to list clusters.cluster.x-k8s.io and to
// get secrets.
type ClusterAPI struct {
	Access    *rest.Config // of the management cluster
	Namespace string       // empty for all
	Selector  string       // of labels; empty for all
	Template  string       // what a cluster is called, from {namespace} and {name}
}

// Bounds of a management cluster's answers.
const (
	maxClusters    = 64 << 20 // bytes of a page
	clustersAtOnce = 20       // to a page: etcd takes about 1.5 MB of an object, so that no tenant makes a page too large
	managementTime = 30 * time.Second
)

const group = "/apis/cluster.x-k8s.io"

type clusterList struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []struct {
		Metadata struct {
			Name      string    `json:"name"`
			Namespace string    `json:"namespace"`
			Created   time.Time `json:"creationTimestamp"`
		} `json:"metadata"`
		Spec struct {
			ControlPlane struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"controlPlaneRef"`
			Topology struct {
				Version string `json:"version"`
			} `json:"topology"` // a ClusterClass writes the control plane
		} `json:"spec"`
	} `json:"items"`
}

// List implements [Source]. A cluster whose Secret is not there yet is refused, and tried again in the next pass.
func (s ClusterAPI) List(ctx context.Context) ([]Cluster, error) {
	client, err := kubeapi.New(s.Access)
	if err != nil {
		return nil, err
	}
	var served struct {
		Preferred struct {
			Version string `json:"version"`
		} `json:"preferredVersion"`
	}
	if err := get(ctx, client, kubeapi.Request{Path: group}, &served); kubeapi.IsStatus(err, http.StatusNotFound) {
		return nil, errors.New("the management cluster has no Cluster API (cluster.x-k8s.io)")
	} else if err != nil {
		return nil, err
	}
	path := group + "/" + url.PathEscape(served.Preferred.Version)
	if s.Namespace != "" {
		path += "/namespaces/" + url.PathEscape(s.Namespace)
	}
	query := url.Values{"limit": {fmt.Sprint(clustersAtOnce)}}
	if s.Selector != "" {
		query.Set("labelSelector", s.Selector)
	}
	var all []Cluster
	for {
		var page clusterList
		if err := get(ctx, client, kubeapi.Request{Path: path + "/clusters", Query: query}, &page); err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			c, err := s.cluster(ctx, client, item.Metadata.Namespace, item.Metadata.Name)
			if err != nil {
				return nil, err
			}
			c.Object, c.Since = item.Metadata.Namespace+"/"+item.Metadata.Name, item.Metadata.Created
			if item.Spec.ControlPlane.Kind == "KubeadmControlPlane" && item.Spec.Topology.Version == "" {
				c.ControlPlane = ControlPlane{item.Metadata.Namespace, item.Spec.ControlPlane.Name}
			}
			all = append(all, c)
		}
		if page.Metadata.Continue == "" {
			return all, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// cluster reads the kubeconfig of a Cluster. The error is that of the management cluster.
func (s ClusterAPI) cluster(ctx context.Context, client kubeapi.Client, namespace, name string) (Cluster, error) {
	c := Cluster{Name: keystore.Name(strings.NewReplacer("{namespace}", namespace, "{name}", name).Replace(s.Template))}
	if c.Err = c.Name.Check(); c.Err != nil {
		return c, nil
	}
	var secret struct {
		Data map[string][]byte `json:"data"`
	}
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/secrets/" + url.PathEscape(name+"-kubeconfig")
	err := get(ctx, client, kubeapi.Request{Path: path}, &secret)
	if err != nil && !kubeapi.IsStatus(err, http.StatusNotFound) && !kubeapi.IsStatus(err, http.StatusForbidden) {
		return c, err
	}
	if err == nil {
		c.Access, err = kubeapi.Inline(secret.Data["value"])
	}
	if err != nil {
		c.Err = fmt.Errorf("its Secret %s/%s-kubeconfig: %w", namespace, name, err)
	}
	return c, nil
}

// get reads one resource.
func get(ctx context.Context, client kubeapi.Client, r kubeapi.Request, into any) error {
	r.Method = http.MethodGet
	body, err := client.Call(ctx, r, kubeapi.Limits{Time: managementTime, Bytes: maxClusters})
	if err != nil {
		return fmt.Errorf("read %s of %s: %w", r.Path, client.Place(), err)
	}
	if json.Unmarshal(body, into) != nil {
		return fmt.Errorf("read %s of %s: it is not the JSON that was asked for", r.Path, client.Place()) // the cause could quote a secret
	}
	return nil
}
