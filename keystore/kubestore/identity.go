package kubestore

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/keypost/keypost/internal/kubeapi"
)

// Identity returns the user name by which the API server knows who calls it (a SelfSubjectReview, which every authenticated user
// may make).
func (s *Backend) Identity(ctx context.Context) (string, error) {
	body, err := json.Marshal(map[string]string{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
	if err != nil {
		return "", err
	}
	answer, err := s.api.call(ctx, kubeapi.Request{Method: http.MethodPost, Path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", Body: body}, 1<<20)
	if err != nil {
		return "", fmt.Errorf("ask the API server of %s for the name of its caller: %w", s.api.place, err)
	}
	var review struct {
		Status struct {
			UserInfo struct {
				Username string `json:"username"`
			} `json:"userInfo"`
		} `json:"status"`
	}
	err = decode(answer, &review)
	return review.Status.UserInfo.Username, err
}
