package oracle

import (
	"testing"
	"github.com/keypost/keypost/keystore"
	"k8s.io/kubernetes/pkg/serviceaccount"
)
func TestX(t *testing.T){ _ = keystore.KeyID(""); _ = serviceaccount.JWKSPath }
