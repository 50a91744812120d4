package keycmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/party"
)

// stillTrusting returns, for each relying party that the policy declares, until when it may trust a key that left at a time,
// and what ends that sooner, where caches were seen to be given these times; where none is declared, for each that is known.
// The cluster itself reads its own files, which no document of ours changes.
func stillTrusting(s keystore.KeySet, at time.Time, seen keystore.Cache) []string {
	parties := s.Policy().RelyingParties
	if len(parties) == 0 {
		parties = append(party.Common(), "any other")
	}
	var lines []string
	for _, name := range parties {
		if party.IsUpload(name) {
			end := name + " without end: until the published keys, without it, are uploaded there"
			if keeps := party.UploadKeeps(name); keeps > 0 {
				end += fmt.Sprintf("; then perhaps for %v more", keystore.Duration(keeps))
			}
			kind, _ := party.Upload(name)
			lines = append(append(lines, end), party.Granted(kind)...)
			continue
		}
		lines = append(lines, party.EndOfTrust(name, s.Issuers()[0].String(), cli.Stamp(s.Gates().CopiesOf(name, at, seen)))...)
	}
	if s.Policy().Reach != keystore.ReachCopies { // else nobody reads the documents, through a cache or without
		lines = append(lines, "caches in front of keypostd: purge them, also of copies that are stale; a purge that only marks copies stale ends nothing")
	}
	return append(lines,
		"the cluster's own kube-apiservers, without end, in this order; on OpenShift the key stands in ConfigMap bound-sa-token-signing-certs of openshift-kube-apiserver:",
		"  1. on each control-plane node the replacement's public key beside the old one in --service-account-key-file; restart every kube-apiserver",
		"  2. the replacement as --service-account-signing-key-file, and as --service-account-private-key-file of kube-controller-manager; restart them all",
		"  3. take the stolen key's file out of --service-account-key-file and restart every kube-apiserver: each running pod gets 401 until it has a new token",
		"  4. restart what runs in pods, the cluster's own add-ons first: a kubelet gives out new tokens only when old ones are near their end",
		"where keypost-signer signs, in place of steps 1 to 3: the replacement's file beside the signer's other keys. No signer signs with the stolen key 2s after its mirror "+
			"has copied the key set (within seconds from a directory or Kubernetes, 15s from s3://, or its --poll); the API servers refuse its tokens at most 10s later")
}

// sayTrust prints a line about trust. One that is a command stays whole for a shell.
func (o *revokeOptions) sayTrust(line string) {
	if command, is := strings.CutPrefix(line, "  "); is && !strings.HasPrefix(command[1:], ". ") { // 1. is for people
		o.Notice("    %s", cli.Paste(command))
		return
	}
	o.Notice("  %s", line)
}
