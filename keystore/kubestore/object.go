package kubestore

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sjson "k8s.io/apimachinery/pkg/util/json"
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
type object struct{ unstructured.Unstructured }

func newObject(body []byte) (object, error) {
	var o object
	if err := decode(body, &o.Object); err != nil {
		return object{}, err
	}
	if o.GetName() == "" || o.GetResourceVersion() == "" {
		return object{}, errors.New("what answers is not a Kubernetes API: it sent an object without name or resourceVersion")
	}
	return o, nil
}

func decode(body []byte, into any) error {
	if err := k8sjson.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the API server's answer is not whole: %s", oneLine(err.Error()))
	}
	return nil
}

// revisionOf: a resourceVersion is that of one write in one etcd; the uid tells it from one that a restored or another
// etcd gave to another object.
func revisionOf(o metav1.Object) keystore.Revision {
	return keystore.Revision(o.GetResourceVersion() + "." + string(o.GetUID()))
}

// document returns the document that the object is: all of it but the API's own bookkeeping. Members that are unknown
// here stay, so that a key set of a newer version is recognised as one and not written back without them.
func (o object) document() ([]byte, error) {
	annotations := o.GetAnnotations()
	delete(annotations, lastApplied)
	asJSON, err := o.withMetadata(map[string]any{}, o.GetName(), o.GetLabels(), annotations)
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
	annotations := next.GetAnnotations()
	if applied, ok := o.GetAnnotations()[lastApplied]; ok {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[lastApplied] = applied
	}
	metadata, stored, _ := unstructured.NestedMap(o.Object, "metadata") // a copy
	if !stored {
		metadata = map[string]any{}
	}
	return next.withMetadata(metadata, next.GetName(), next.GetLabels(), annotations)
}

// withMetadata returns the object in JSON, without its status, with other metadata that gets a name, labels and annotations.
func (o object) withMetadata(metadata map[string]any, name string, labels, annotations map[string]string) ([]byte, error) {
	o = object{*o.DeepCopy()}
	delete(o.Object, "status")
	o.Object["metadata"] = metadata
	o.SetName(name)
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
	return json.Marshal(o.Object)
}

// parseDocument reads a document that is to be written.
func parseDocument(n keystore.Name, doc []byte) (object, error) {
	asJSON, err := yaml.YAMLToJSON(doc)
	if err != nil {
		return object{}, err
	}
	var o object
	if err := k8sjson.Unmarshal(asJSON, &o.Object); err != nil {
		return object{}, err
	}
	if o.GetName() != string(n) {
		return object{}, fmt.Errorf("its metadata.name is %q", text.OneLine(o.GetName(), 100))
	}
	return o, nil
}
