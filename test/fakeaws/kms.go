package fakeaws

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"sync/atomic"
)

// KMS answers GetPublicKey and Sign as AWS KMS does, on an endpoint of its own. It shows nothing of KMS's key policies, quotas and latency.
type KMS struct {
	Private  map[string]crypto.Signer // by ARN
	Usage    string                   // of all keys; default SIGN_VERIFY
	Throttle atomic.Int32             // calls that are throttled from now on
	Asked    atomic.Int32
}

// ServeHTTP implements http.Handler.
func (k *KMS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.Asked.Add(1)
	answer, f := k.answer(r)
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if f != nil {
		w.WriteHeader(f.status)
		_ = json.NewEncoder(w).Encode(map[string]string{"__type": f.code, "message": f.message})
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (k *KMS) answer(r *http.Request) (map[string]any, *failure) {
	var in struct {
		KeyID       string `json:"KeyId"`
		Message     []byte
		MessageType string
		Algorithm   string `json:"SigningAlgorithm"`
	}
	err := json.NewDecoder(r.Body).Decode(&in)
	refuse := func(code, message string) (map[string]any, *failure) {
		return nil, &failure{status: http.StatusBadRequest, code: code, message: message}
	}
	private := k.Private[in.KeyID]
	answer := map[string]any{"KeyId": in.KeyID, "KeyUsage": "SIGN_VERIFY"}
	if k.Usage != "" {
		answer["KeyUsage"] = k.Usage
	}
	switch {
	case err != nil:
		return refuse("SerializationException", err.Error())
	case k.Throttle.Add(-1) >= 0:
		return refuse("ThrottlingException", "Rate exceeded")
	case private == nil:
		return refuse("NotFoundException", "Key '"+in.KeyID+"' does not exist")
	case r.Header.Get("X-Amz-Target") == "TrentService.GetPublicKey":
		answer["PublicKey"], err = x509.MarshalPKIXPublicKey(private.Public())
	case in.MessageType != "DIGEST":
		return refuse("ValidationException", "no digest")
	default:
		hash := map[string]crypto.Hash{
			"RSASSA_PKCS1_V1_5_SHA_256": crypto.SHA256, "ECDSA_SHA_256": crypto.SHA256, "ECDSA_SHA_384": crypto.SHA384, "ECDSA_SHA_512": crypto.SHA512,
		}[in.Algorithm]
		answer["Signature"], err = private.Sign(rand.Reader, in.Message, hash)
	}
	if err != nil {
		return refuse("KMSInternalException", err.Error())
	}
	return answer, nil
}
