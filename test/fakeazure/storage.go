package fakeazure

import (
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"regexp"
	"strings"

	"github.com/keypost/keypost/test/fakecloud"
)

const accountType = "Microsoft.Storage/storageAccounts"

func storageRoutes(group string) []route {
	accounts := group + "/providers/Microsoft.Storage/storageAccounts"
	const permission = "storageAccounts/"
	storage := func(action, method, path, verb string, do func(*request) (answer, error)) route {
		return managed("Microsoft.Storage", storageVersions, route{action: action, method: method, path: path, permission: permission + verb, do: do})
	}
	container := accounts + "/{account}/blobServices/default/containers/{container}"
	return []route{
		storage("ListAccounts", "GET", accounts, "read", listAccounts),
		storage("GetAccount", "GET", accounts+"/{account}", "read", getAccount),
		storage("PutAccount", "PUT", accounts+"/{account}", "write", putAccount),
		storage("PatchAccount", "PATCH", accounts+"/{account}", "write", patchAccount),
		storage("DeleteAccount", "DELETE", accounts+"/{account}", "delete", deleteAccount),
		storage("ListAccountKeys", "POST", accounts+"/{account}/listKeys", "listkeys/action", listKeys),
		storage("GetContainer", "GET", container, "blobServices/containers/read", getContainer),
		storage("PutContainer", "PUT", container, "blobServices/containers/write", putContainer),
	}
}

func (a Account) json() map[string]any {
	return map[string]any{"id": a.ID, "name": a.Name, "type": accountType, "location": a.Location, "tags": a.Tags, "kind": "StorageV2",
		"sku": map[string]string{"name": "Standard_LRS", "tier": "Standard"}, "properties": map[string]any{"provisioningState": "Succeeded",
			"allowBlobPublicAccess": a.Public, "primaryEndpoints": map[string]string{"blob": "https://" + a.Name + ".blob.core.windows.net/"}}}
}

func (q *request) account() (Account, error) {
	if _, err := q.group(); err != nil {
		return Account{}, err
	}
	a, ok := q.world.accounts[strings.ToLower(q.resourceID(accountType, q.vars["account"]))]
	if !ok {
		return a, noResource(accountType, q.vars["account"], q.vars["group"])
	}
	return a, nil
}

func (q *request) putAccount(a Account) {
	q.world.accounts = fakecloud.With(q.world.accounts, strings.ToLower(a.ID), a)
}

func listAccounts(q *request) (answer, error) {
	g, err := q.group()
	if err != nil {
		return answer{}, err
	}
	var items []any
	for _, a := range fakecloud.Sorted(q.world.accounts) {
		if within(a.ID, g.ID) {
			items = append(items, a.json())
		}
	}
	return q.page(items)
}

func getAccount(q *request) (answer, error) {
	a, err := q.account()
	if err != nil {
		return answer{}, err
	}
	return ok(a.json())
}

// putAccount is an operation that ends later. Names are unique among all of Azure's accounts.
func putAccount(q *request) (answer, error) {
	var in tracked
	if err := q.read(&in); err != nil {
		return answer{}, err
	}
	g, err := q.openGroup()
	if err != nil {
		return answer{}, err
	}
	name := q.vars["account"]
	if !regexp.MustCompile(`^[a-z0-9]{3,24}$`).MatchString(name) {
		return answer{}, badRequest("AccountNameInvalid", "%s is not a valid storage account name. Storage account name must be between 3 and 24 characters in "+
			"length and use numbers and lower-case letters only.", name)
	}
	a, err := q.account()
	exists := err == nil
	location, err := in.place(a.Location)
	if err != nil {
		return answer{}, err
	}
	for _, o := range q.world.accounts {
		if !exists && o.Name == name {
			return answer{}, conflict("StorageAccountAlreadyTaken", "The storage account named %s is already taken.", name)
		}
	}
	public, _ := in.Properties["allowBlobPublicAccess"].(bool)
	a = Account{ID: g.ID + "/providers/" + accountType + "/" + name, Name: name, Location: location, Tags: in.Tags, Public: public, Containers: a.Containers}
	if exists {
		q.putAccount(a)
		return ok(a.json())
	}
	return q.start(func(w world) world {
		w.accounts = fakecloud.With(w.accounts, strings.ToLower(a.ID), a)
		return w
	}, func(world) any { return a.json() })
}

func patchAccount(q *request) (answer, error) {
	a, err := q.account()
	if err == nil {
		a.Tags, err = q.retag(a.Tags)
	}
	if err != nil {
		return answer{}, err
	}
	q.putAccount(a)
	return ok(a.json())
}

func deleteAccount(q *request) (answer, error) {
	if _, err := q.group(); err != nil {
		return answer{}, err
	}
	a, err := q.account()
	if err != nil {
		return nothing()
	}
	q.world = q.world.withoutAccount(a)
	return answer{status: http.StatusOK}, nil
}

func (w world) withoutAccount(a Account) world {
	w.accounts = fakecloud.Without(w.accounts, strings.ToLower(a.ID))
	for key := range w.blobs {
		if strings.HasPrefix(key, a.Name+"/") {
			w.blobs = fakecloud.Without(w.blobs, key)
		}
	}
	return w
}

func listKeys(q *request) (answer, error) {
	a, err := q.account()
	if err != nil {
		return answer{}, err
	}
	return ok(map[string]any{"keys": []any{map[string]string{"keyName": "key1", "permissions": "FULL",
		"value": base64.StdEncoding.EncodeToString([]byte("key of " + a.Name))}}})
}

func container(q *request, public bool) map[string]any {
	access := "None"
	if public {
		access = "Container"
	}
	return map[string]any{"id": q.path, "name": q.vars["container"], "type": accountType + "/blobServices/containers",
		"properties": map[string]string{"publicAccess": access}}
}

func getContainer(q *request) (answer, error) {
	a, err := q.account()
	if err != nil {
		return answer{}, err
	}
	public, there := a.Containers[q.vars["container"]]
	if !there {
		return answer{}, notFound("ContainerNotFound", "The specified container does not exist.")
	}
	return ok(container(q, public))
}

func putContainer(q *request) (answer, error) {
	var in tracked
	if err := q.read(&in); err != nil {
		return answer{}, err
	}
	a, err := q.account()
	if err != nil {
		return answer{}, err
	}
	public := in.Properties["publicAccess"] == "Container" || in.Properties["publicAccess"] == "Blob"
	if public && !a.Public {
		return answer{}, conflict("PublicAccessNotPermitted", "Public access is not permitted on this storage account.")
	}
	_, there := a.Containers[q.vars["container"]]
	a.Containers = fakecloud.With(a.Containers, q.vars["container"], public)
	q.putAccount(a)
	if there {
		return ok(container(q, public))
	}
	return created(container(q, public))
}

// blobRoute is a call of Blob Storage, of the account whose host it is. Who writes must bring some authorization.
func blobRoute(r *http.Request) route {
	rt := route{service: "blob", action: "GetBlob", open: true, do: getBlob}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		rt.action, rt.write, rt.do = "PutBlob", true, putBlob
	}
	return rt
}

// blob is the key of what a path names, and whether its container is there and public.
func (q *request) blob() (key string, there, public bool) {
	container, name, _ := strings.Cut(strings.TrimLeft(q.path, "/"), "/")
	for _, a := range q.world.accounts {
		if a.Name == q.vars["account"] {
			public, there = a.Containers[container]
			return a.Name + "/" + container + "/" + strings.TrimLeft(name, "/"), there, public && a.Public
		}
	}
	return "", false, false
}

func noBlob(status int, code string) answer {
	b, _ := xml.Marshal(struct { //nolint:errchkjson // two texts
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}{Code: code, Message: code})
	return answer{status: status, body: b, header: map[string]string{"X-Ms-Error-Code": code, "Content-Type": "application/xml"}}
}

func getBlob(q *request) (answer, error) {
	key, there, public := q.blob()
	content, found := q.world.blobs[key]
	switch {
	case !there || !public:
		return noBlob(http.StatusNotFound, "ResourceNotFound"), nil
	case !found:
		return noBlob(http.StatusNotFound, "BlobNotFound"), nil
	}
	return answer{status: http.StatusOK, body: []byte(content), header: q.blobHeader(content)}, nil
}

func (q *request) blobHeader(content string) map[string]string {
	return map[string]string{"ETag": `"` + guid(content) + `"`, "Last-Modified": q.now.UTC().Format(http.TimeFormat), "Content-Type": "application/octet-stream"}
}

func putBlob(q *request) (answer, error) {
	key, there, _ := q.blob()
	switch {
	case q.header.Get("Authorization") == "":
		return noBlob(http.StatusUnauthorized, "NoAuthenticationInformation"), nil
	case !there:
		return noBlob(http.StatusNotFound, "ContainerNotFound"), nil
	case q.query.Get("comp") != "" || q.header.Get("X-Ms-Blob-Type") != "BlockBlob":
		return noBlob(http.StatusBadRequest, "UnsupportedHeader"), nil
	}
	q.world.blobs = fakecloud.With(q.world.blobs, key, string(q.body))
	return answer{status: http.StatusCreated, header: q.blobHeader(string(q.body))}, nil
}
