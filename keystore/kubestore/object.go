package kubestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/manifest"
)

// objectLimit bounds the size of one object, in bytes: etcd takes 1.5 MiB by default.
const objectLimit = 4 << 20

// lastApplied is the annotation with kubectl's copy of the whole manifest. It is not part of the document: there it would be an old
// key set inside the new.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// object is a custom resource as the API server gave it, with members that nobody here knows.
type object struct {
	members  map[string]json.RawMessage
	metadata map[string]json.RawMessage
	identity
}

// identity is the part of an object's metadata that is read.
type identity struct {
	Name            keystore.Name     `json:"name"`
	ResourceVersion string            `json:"resourceVersion"`
	UID             string            `json:"uid"`
	Labels          map[string]string `json:"labels"`
	Annotations     map[string]string `json:"annotations"`
}

func newObject(body []byte) (object, error) {
	var o object
	if err := decode(body, &o.members); err != nil {
		return object{}, err
	}
	if err := decode(o.members["metadata"], &o.metadata); err != nil {
		return object{}, err
	}
	if err := decode(o.members["metadata"], &o.identity); err != nil {
		return object{}, err
	}
	if o.Name == "" || o.ResourceVersion == "" {
		return object{}, errors.New("what answers is not a Kubernetes API: it sent an object without name or resourceVersion")
	}
	return o, nil
}

func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the API server's answer is not whole: %s", oneLine(err.Error()))
	}
	return nil
}

// document returns the document that the object is: all of it but the API's own bookkeeping. Members that are unknown
// here stay, so that a key set of a newer version is recognised as one and not written back without them.
func (o object) document() ([]byte, error) {
	members, annotations := maps.Clone(o.members), maps.Clone(o.Annotations)
	delete(members, "status")
	delete(annotations, lastApplied)
	own := struct {
		Name        keystore.Name     `json:"name"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}{o.Name, o.Labels, annotations}
	var err error
	if members["metadata"], err = marshal(own); err != nil {
		return nil, err
	}
	asJSON, err := marshal(members)
	if err != nil {
		return nil, err
	}
	if asYAML, err := manifest.SortedYAML(asJSON); err == nil {
		return asYAML, nil
	}
	return asJSON, nil // which is broken, of this one key set; an error would be one of the store
}

// with returns the object with next in place of the document that it is. Owners, finalizers and the like stay as they
// are, and so does the resourceVersion, with which the API server refuses the write if the object was changed since. The zero
// object gives one to create.
func (o object) with(next object) ([]byte, error) {
	annotations := maps.Clone(next.Annotations)
	if applied, ok := o.Annotations[lastApplied]; ok {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[lastApplied] = applied
	}
	metadata := maps.Clone(o.metadata)
	if metadata == nil {
		metadata = map[string]json.RawMessage{}
	}
	var err error
	for member, value := range map[string]any{"name": next.Name, "labels": next.Labels, "annotations": annotations} {
		if metadata[member], err = marshal(value); err != nil {
			return nil, err
		}
	}
	members := maps.Clone(next.members)
	if members["metadata"], err = marshal(metadata); err != nil {
		return nil, err
	}
	delete(members, "status")
	return marshal(members)
}

// parseDocument reads a document that is to be written.
func parseDocument(n keystore.Name, doc []byte) (object, error) {
	asJSON, err := yaml.YAMLToJSON(doc)
	if err != nil {
		return object{}, err
	}
	var o object
	if err := json.Unmarshal(asJSON, &o.members); err != nil {
		return object{}, err
	}
	if err := json.Unmarshal(o.members["metadata"], &o.identity); err != nil {
		return object{}, err
	}
	if o.Name != n {
		return object{}, fmt.Errorf("its metadata.name is %q", text.OneLine(string(o.Name), 100))
	}
	return o, nil
}

// marshal leaves <, > and & as they are: the document is to have the size that it has elsewhere.
func marshal(value any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimSpace(b.Bytes()), err
}
