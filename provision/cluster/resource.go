package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxResource bounds what is read of one reply: a page of the largest pods stays below it.
const maxResource = 256 << 20

// statusError is an answer that is no success.
type statusError struct {
	code    int
	message string // the Status object's; "" when the answer is none
}

func (e *statusError) Error() string {
	switch {
	case e.code >= 300 && e.code < 400:
		return fmt.Sprintf("the cluster redirects (%d), which is not followed: the credentials would go along", e.code)
	case e.code == http.StatusUnauthorized:
		return "the cluster does not accept the credentials of this kubeconfig (401)"
	case e.message != "":
		return fmt.Sprintf("the cluster answers %d: %s", e.code, e.message)
	}
	return fmt.Sprintf("the cluster answers %d", e.code)
}

func isStatus(err error, code int) bool {
	e, is := errors.AsType[*statusError](err)
	return is && e.code == code
}

// read gets a resource. Types are declared where they are used, with the members that are read: the typed client would
// bring every API of Kubernetes into the program.
func (a api) read(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, http.NoBody)
	if err != nil {
		return err
	}
	return a.do(req, into)
}

func (a api) create(ctx context.Context, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return a.do(req, into)
}

func (a api) do(req *http.Request, into any) error {
	req.Header.Set("Accept", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return oneLine(err)
	}
	defer func() { _ = resp.Body.Close() }()
	reply := io.LimitReader(resp.Body, maxResource)
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated {
		return refusal(resp.StatusCode, reply)
	}
	if err := json.NewDecoder(reply).Decode(into); err != nil {
		return errors.New("the cluster's answer is not the JSON that was asked for") // the cause could quote a token
	}
	return nil
}

// refusal reads the Status object of a refused request. It names resources and users, no secrets.
func refusal(code int, body io.Reader) error {
	var status struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	}
	if json.NewDecoder(io.LimitReader(body, 64<<10)).Decode(&status) != nil || status.Kind != "Status" {
		return &statusError{code: code}
	}
	return &statusError{code: code, message: oneLine(errors.New(status.Message)).Error()}
}
