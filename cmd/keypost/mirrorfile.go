package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/keypost/keypost/internal/durable"
	"github.com/keypost/keypost/internal/regular"
)

// maxRegular bounds what is read of a file in a directory that is written to, in bytes.
const maxRegular = 64 << 20

// readRegular reads a file that keypost wrote, or somebody else put there.
func readRegular(root *os.Root, file string) ([]byte, error) {
	data, err := regular.ReadIn(root, file, maxRegular)
	if errors.Is(err, regular.ErrUnfit) {
		return nil, fmt.Errorf("%s is no file that keypost has written; move it away", file)
	}
	return data, err
}

// replaceFile writes a file whole and durably, unless it has that content already.
func replaceFile(root *os.Root, file string, data []byte) (written bool, err error) {
	if old, err := readRegular(root, file); err == nil && bytes.Equal(old, data) {
		return false, nil
	}
	if err := root.MkdirAll(path.Dir(file), 0o755); err != nil {
		return false, err
	}
	return true, exportWriter(root).Replace(file, data)
}

// exportWriter makes public documents; in the directory of a store, that store leaves its temporary files alone.
func exportWriter(root *os.Root) durable.Writer {
	return durable.Writer{FS: durable.Root{Root: root}, Owner: "keypost-export", Mode: 0o644}
}
