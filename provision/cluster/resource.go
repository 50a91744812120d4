package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/keypost/keypost/internal/kubeapi"
)

// maxResource bounds what is read of one reply: a page of the largest pods stays below it.
const maxResource = 256 << 20

// refusal is an answer other than success, as one sentence. It wraps the [*kubeapi.StatusError].
type refusal struct{ *kubeapi.StatusError }

func (e refusal) Unwrap() error { return e.StatusError }

func (e refusal) Error() string {
	switch {
	case e.Code >= 300 && e.Code < 400:
		return fmt.Sprintf("the cluster redirects (%d), which is not followed: the credentials would go along", e.Code)
	case e.Code == http.StatusUnauthorized:
		return "the cluster does not accept the credentials of this kubeconfig (401)"
	case e.Status && e.Message != "": // a Status names resources and users, no secrets; another body may
		return fmt.Sprintf("the cluster answers %d: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("the cluster answers %d", e.Code)
}

// read gets a resource. The types are declared where they are used, with no more members than are read.
func (a api) read(ctx context.Context, path string, into any) error {
	return a.do(ctx, kubeapi.Request{Method: http.MethodGet, Path: path}, into)
}

func (a api) create(ctx context.Context, path string, body []byte, into any) error {
	return a.do(ctx, kubeapi.Request{Method: http.MethodPost, Path: path, Body: body}, into)
}

func (a api) do(ctx context.Context, r kubeapi.Request, into any) error {
	body, err := a.call(ctx, r, maxResource)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return errors.New("the cluster's answer is not the JSON that was asked for") // the cause could quote a token
	}
	return nil
}

// Refused reports whether err is a cluster's answer that it will give again: to who may not ask, or who asks for what is not there.
func Refused(err error) bool {
	status, answered := errors.AsType[*kubeapi.StatusError](err)
	return answered && status.Code >= 300 && status.Code < 500 && status.Code != http.StatusRequestTimeout && status.Code != http.StatusTooManyRequests
}
