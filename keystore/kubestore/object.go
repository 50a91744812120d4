package kubestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/keystore"
)

// objectLimit bounds what is read of one object, in bytes: etcd takes 1.5 MiB by default.
const objectLimit = 4 << 20

// Annotations that are bookkeeping of the API and no part of the key set document.
const (
	// writeID is new with every write of ours, so that a writer can recognise its own after an answer got lost.
	writeID = "keypost.dev/write-id"
	// lastApplied is kubectl's copy of the whole manifest; in the document it would be an old key set inside the new.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// object is a custom resource as the API server gave it, with members that nobody here knows.
type object struct {
	members  map[string]json.RawMessage
	metadata map[string]json.RawMessage
	identity
}

// identity is what is read of an object's metadata.
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
		return object{}, errors.New("what answers is no Kubernetes API: it sent an object without name or resourceVersion")
	}
	return o, nil
}

func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the API server's answer is not whole: %s", oneLine(err.Error()))
	}
	return nil
}

// keySet reads the document that the object is: all of it but the API's own bookkeeping. Members that are unknown here
// stay, so that a key set of a newer version is recognised as one and not written back without them.
func (o object) keySet(n keystore.Name) (keystore.KeySet, error) {
	document := maps.Clone(o.members)
	delete(document, "status")
	own := struct {
		Name        keystore.Name     `json:"name"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}{o.Name, o.Labels, o.documentAnnotations()}
	var err error
	if document["metadata"], err = marshal(own); err != nil {
		return keystore.KeySet{}, err
	}
	data, err := marshal(document)
	if err != nil {
		return keystore.KeySet{}, err
	}
	set, err := keystore.Parse(n, data)
	if err != nil || len(set.Unknown()) == 0 {
		return set, err
	}
	text, err := yaml.JSONToYAML(data) // who copies it writes what was read: the form that it has everywhere else
	if err != nil {
		return keystore.KeySet{}, fmt.Errorf("key set %q: %w", n, err)
	}
	return keystore.Parse(n, text)
}

func (o object) documentAnnotations() map[string]string {
	own := maps.Clone(o.Annotations)
	delete(own, writeID)
	delete(own, lastApplied)
	return own
}

// with returns the object with document (JSON) in place of the one it is. Owners, finalizers and the like stay as they
// are, and so does the resourceVersion, which makes the API server refuse the write when somebody was faster. The zero
// object gives one to create.
func (o object) with(document []byte, id string) ([]byte, error) {
	next, err := parseDocument(document)
	if err != nil {
		return nil, err
	}
	annotations := maps.Clone(next.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[writeID] = id
	if applied, ok := o.Annotations[lastApplied]; ok {
		annotations[lastApplied] = applied
	}
	metadata := maps.Clone(o.metadata)
	if metadata == nil {
		metadata = map[string]json.RawMessage{}
	}
	for member, value := range map[string]any{"name": next.Name, "labels": next.Labels, "annotations": annotations} {
		if metadata[member], err = marshal(value); err != nil {
			return nil, err
		}
	}
	if next.members["metadata"], err = marshal(metadata); err != nil {
		return nil, err
	}
	if status, ok := o.members["status"]; ok {
		next.members["status"] = status
	}
	return marshal(next.members)
}

func parseDocument(document []byte) (object, error) {
	var o object
	if err := json.Unmarshal(document, &o.members); err != nil {
		return object{}, err
	}
	return o, json.Unmarshal(o.members["metadata"], &o.identity)
}

// encode returns the document as JSON, which the API server stores, once keystore.Encode has agreed to it.
func encode(s keystore.KeySet) ([]byte, error) {
	text, err := keystore.Encode(s)
	if err != nil {
		return nil, err
	}
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("encode key set %q: %w", s.Name(), err)
	}
	if size := max(len(data), len(text)); size > keystore.MaxDocument {
		return nil, fmt.Errorf("the document has %d bytes; at most %d can be read back", size, keystore.MaxDocument)
	}
	return data, nil
}

// marshal leaves <, > and & as they are: the document is to have the size that it has elsewhere.
func marshal(value any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimSpace(b.Bytes()), err
}
