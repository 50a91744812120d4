package provision

import (
	"io/fs"
)

// Names that the installer and scripts written for ccoctl look for, below the output directory.
const (
	Manifests = "manifests" // directory of what the installer puts into the cluster
	TLS       = "tls"       // directory of the signing key that the installer puts into the cluster
)

// File is a complete file of ccoctl's layout.
type File struct {
	Name string // slash-separated path below the output directory
	Data []byte
	Mode fs.FileMode
}
