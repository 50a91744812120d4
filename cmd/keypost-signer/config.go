package main

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/keypost/keypost/internal/settings"
	"github.com/keypost/keypost/keystore"
)

// config is keypost-signer's configuration file (YAML). Unknown and repeated keys are errors. A change needs a restart.
type config struct {
	// Dir holds the cluster's key set, KEYSET.yaml. keypost mirror fills it. Required; keypost-signer never writes to it.
	Dir string `json:"dir"`

	// KeySet is the name of the cluster's key set. Required.
	KeySet keystore.Name `json:"keySet"`

	// Keys is a directory of private keys in PEM, NAME.pem or NAME.key, mode 0600. A new file is picked up without a restart. Keys, KMS or
	// PKCS11 is required.
	Keys string `json:"keys,omitempty"`

	// KMS names keys in AWS KMS by their ARNs. Credentials are the instance's role or those of the SDK's files, never a web identity
	// token of the cluster.
	KMS []string `json:"kms,omitempty"`

	// PKCS11 is a token whose keys are used. Only a build with the tag pkcs11 has it.
	PKCS11 *pkcs11Config `json:"pkcs11,omitempty"`

	// Socket is where the kube-apiserver beside it asks.
	Socket socketConfig `json:"socket"`

	// Admin is the listener for metrics and health. It has no authentication: keep it on loopback.
	Admin adminConfig `json:"admin"`
}

type pkcs11Config struct {
	Module string `json:"module"`  // path of the vendor's library
	Token  string `json:"token"`   // label of the token
	PIN    string `json:"pinFile"` // file with the user's PIN, mode 0600
}

type socketConfig struct {
	// Path is that of --service-account-signing-endpoint. Default "/run/keypost-signer/signer.sock". Its directory is made with mode
	// 0700 if there is none.
	Path string `json:"path"`

	UIDs []uint32 `json:"uids"`           // users that may have tokens signed; default [0], which a kube-apiserver of kubeadm runs as
	GIDs []uint32 `json:"gids,omitempty"` // groups that may; default none
}

type adminConfig struct {
	Address string `json:"address"` // host:port; default "127.0.0.1:9095"
}

func readConfig(file string) (config, error) { return settings.Read(file, parseConfig) }

func parseConfig(data []byte) (config, error) {
	c := config{Socket: socketConfig{Path: "/run/keypost-signer/signer.sock", UIDs: []uint32{0}}, Admin: adminConfig{Address: "127.0.0.1:9095"}}
	if err := settings.Parse(data, &c); err != nil {
		return config{}, err
	}
	return c, c.check()
}

// check returns an error for everything that cannot work, each with what to write instead.
func (c config) check() error {
	var errs []error
	refuse := func(wrong bool, text string) {
		if wrong {
			errs = append(errs, errors.New(text))
		}
	}
	refuse(c.Dir == "", "dir is not set: name the directory that keypost mirror fills")
	refuse(c.Keys == "" && len(c.KMS) == 0 && c.PKCS11 == nil, "keys is not set: name the directory that holds the private keys, or keys of AWS KMS in kms, or a token in pkcs11")
	refuse(c.PKCS11 != nil && (c.PKCS11.Module == "" || c.PKCS11.Token == "" || c.PKCS11.PIN == ""), "pkcs11 needs module, token and pinFile")
	if c.KeySet == "" {
		refuse(true, "keySet is not set: name the cluster's key set")
	} else if err := c.KeySet.Check(); err != nil {
		errs = append(errs, fmt.Errorf("keySet: %w", err))
	}
	refuse(!strings.HasPrefix(c.Socket.Path, "/"), "socket.path is not absolute: write it as the kube-apiserver's flag has it")
	_, _, err := net.SplitHostPort(c.Admin.Address)
	refuse(err != nil, "admin.address is not host:port, such as 127.0.0.1:9095")
	refuse(len(c.Socket.UIDs)+len(c.Socket.GIDs) == 0, "socket.uids is empty: name the user that the kube-apiserver runs as")
	return errors.Join(errs...)
}
