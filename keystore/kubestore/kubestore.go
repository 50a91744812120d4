// Package kubestore keeps key sets in a Kubernetes API: one custom resource KeySet (keysets.keypost.dev) per key set,
// whose object is the key set document itself, in one namespace. It promises that a listing is one consistent state of
// the namespace or an error, that of several writers none undoes another's change, and that a write which was reported
// as done is what the API server stores.
//
// The custom resource definition (charts/keypost/files/keysets.keypost.dev.yaml) has the API server refuse changes
// that no change of a key set may be, no matter who makes them: a key that leaves without a line in gone, a shortened gone,
// other material under a known kid, a dropped issuer URL, a generation that does not follow. What it cannot check is
// checked when a document is read.
//
// Rights, as RBAC verbs on keysets.keypost.dev in the namespace: a reader (keypost mirror) needs get, list and watch; a
// writer get and update, best with resourceNames, so that it writes its own key sets only; anyone who adds key sets needs
// create. Nobody needs delete or patch. Anyone who may update a key set can make relying parties trust their keys.
//
// Observations (observations.keypost.dev) are kept in the same way, under rights of their own: get, list, create and update.
package kubestore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/keystore"
)

// Options select an API server and credentials. With neither field, a program that runs in a pod is the pod's
// service account, and any other takes what kubectl would take ($KUBECONFIG, ~/.kube/config).
type Options struct {
	Kubeconfig string // file
	Context    string // of the kubeconfig; empty is the current one
}

// Backend is the key sets, or the observations, of one namespace. It implements [keystore.Backend] and [keystore.Watcher], holds no
// document in memory, and is safe for concurrent use, also by several processes.
type Backend struct {
	kind
	client     kubeapi.Client
	collection string // path
	namespace  string
	place      string // "namespace NS at HOST", for messages
	timeout    time.Duration
	shortest   time.Duration // what a watch lasts at least, or something on the way ends every watch
}

var (
	_ keystore.Backend = (*Backend)(nil)
	_ keystore.Watcher = (*Backend)(nil)
)

// Open returns the store in a namespace. It reads the kubeconfig and asks the API server nothing yet.
func Open(ctx context.Context, namespace string, o Options) (*Backend, error) {
	return open(ctx, namespace, o, keySets())
}

// OpenObservations is Open for observations instead of key sets.
func OpenObservations(ctx context.Context, namespace string, o Options) (*Backend, error) {
	return open(ctx, namespace, o, observations())
}

func open(ctx context.Context, namespace string, o Options, k kind) (*Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !dnsname.IsLabel(namespace) {
		return nil, fmt.Errorf("open key store: %q is not the name of a namespace", namespace)
	}
	var client kubeapi.Client
	config, err := o.config()
	if err == nil {
		client, err = kubeapi.New(config)
	}
	if err != nil {
		return nil, fmt.Errorf("open key store in namespace %s: %s", namespace, oneLine(err.Error()))
	}
	return &Backend{
		kind: k, client: client, collection: "/apis/" + group + "/" + version + "/namespaces/" + namespace + "/" + k.resource,
		namespace: namespace, place: fmt.Sprintf("namespace %s at %s", namespace, client.Place()),
		timeout: timeout, shortest: time.Second,
	}, nil
}

// Place names the namespace and the API server's address, without credentials.
func (s *Backend) Place() string {
	scheme, _, _ := strings.Cut(s.client.URL(), "://")
	return "kubernetes://" + s.namespace + "?server=" + scheme + "://" + s.client.Place()
}

// config prefers a pod's own service account to a kubeconfig that only the environment names: that one may be of the
// cluster that is being looked after, which is not where the key sets are.
func (o Options) config() (*rest.Config, error) {
	if o == (Options{}) && os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return rest.InClusterConfig()
	}
	config, err := kubeapi.Load(o.Kubeconfig, o.Context)
	if _, empty := errors.AsType[*kubeapi.EmptyError](err); empty {
		return nil, errors.New("there is no kubeconfig; set KUBECONFIG, or add ?kubeconfig=FILE to the store's URL")
	}
	return config, err
}

// A page is small enough to be held in memory several times over; a page of metadata has about 300 kB.
const (
	pageSize  = 500
	pageLimit = 64 << 20 // bytes: metadata may have 256 kB of annotations, though it never has
)

// List names every key set with its revision: one state of the namespace, read page by page, without the documents.
//
// An empty listing may mean that the namespace does not exist: the API server answers the same. That is one more reason
// why absence is never deletion.
func (s *Backend) List(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
	all, err := s.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("list %s in %s: %w", s.many, s.place, s.advise(err, "get, list and watch"))
	}
	return all, nil
}

func (s *Backend) list(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
	all := map[keystore.Name]keystore.Revision{}
	state, next := "", ""
	for {
		p, err := s.page(ctx, pageSize, next)
		if err != nil {
			return nil, err
		}
		if state == "" {
			state = p.ResourceVersion
		}
		if p.ResourceVersion != state {
			return nil, errors.New("the API server went on with another state of the namespace in the middle of a listing")
		}
		for _, i := range p.Items {
			if i.Name == "" || i.ResourceVersion == "" {
				return nil, errors.New("the API server listed an object without name or resourceVersion")
			}
			all[keystore.Name(i.Name)] = revisionOf(&i)
		}
		if next = p.Continue; next == "" {
			return all, nil
		}
	}
}

// Only metadata is asked for; the documents of ten thousand key sets are 30 MB, which nobody reads at every poll.
const (
	metadataList = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	metadataOne  = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
)

// page asks for the newest state, or for the next page of a listing that has begun: no resourceVersion means a consistent read.
func (s *Backend) page(ctx context.Context, limit int, next string) (p metav1.PartialObjectMetadataList, err error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if next != "" {
		query.Set("continue", next)
	}
	body, err := s.call(ctx, kubeapi.Request{Method: http.MethodGet, Path: s.collection, Query: query, Accept: metadataList}, pageLimit)
	if err == nil {
		err = decode(body, &p)
	}
	if err == nil && (p.Kind != "PartialObjectMetadataList" || p.ResourceVersion == "") {
		err = errors.New("what answers is not a Kubernetes API: it sent no list of metadata")
	}
	return p, err
}

// Get returns one document as it is stored at that moment: YAML with sorted keys, with the members that a newer version
// wrote and without the API's own bookkeeping.
func (s *Backend) Get(ctx context.Context, n keystore.Name) ([]byte, keystore.Revision, error) {
	o, err := s.get(ctx, n)
	if err != nil {
		return nil, "", err
	}
	doc, err := o.document()
	if err != nil {
		return nil, revisionOf(&o), fmt.Errorf("read %s %q in %s: %w", s.one, n, s.place, err)
	}
	return doc, revisionOf(&o), nil
}

// get returns the stored object, or an error that wraps keystore.ErrNotFound.
func (s *Backend) get(ctx context.Context, n keystore.Name) (object, error) {
	if err := ctx.Err(); err != nil {
		return object{}, err
	}
	if !dnsname.IsSubdomain(string(n)) { // nothing else gets into a path
		return object{}, s.notFound()
	}
	body, err := s.call(ctx, kubeapi.Request{Method: http.MethodGet, Path: s.object(n)}, objectLimit)
	if s.isAbsent(err, n) {
		return object{}, s.notFound()
	}
	if err != nil {
		return object{}, fmt.Errorf("read %s %q in %s: %w", s.one, n, s.place, s.advise(err, "get"))
	}
	return newObject(body)
}

func (s *Backend) notFound() error { return fmt.Errorf("%w in %s", keystore.ErrNotFound, s.place) }
