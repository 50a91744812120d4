//go:build e2e_full

package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// An image holds one program and the CA bundle: nothing else can have a hole, and there is no shell to use one with.
func TestImages(t *testing.T) {
	for _, name := range []string{"keypostd", "keypost"} {
		t.Run(name, func(t *testing.T) {
			blobs := readTar(t, openFile(t, tool(t, "node")+"/images/"+name+".tar"))
			var index struct{ Manifests []struct{ Digest string } }
			decode(t, blobs["index.json"], &index)
			var manifest struct {
				Config struct{ Digest string }
				Layers []struct{ Digest string }
			}
			decode(t, blobs[blob(index.Manifests[0].Digest)], &manifest)
			var image struct {
				Config struct {
					User       string
					Entrypoint []string
					Labels     map[string]string
				}
			}
			decode(t, blobs[blob(manifest.Config.Digest)], &image)
			if c := image.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/" + name}) {
				t.Errorf("it runs %v as %s", c.Entrypoint, c.User)
			}
			for _, label := range []string{"source", "revision", "version", "licenses", "title", "description", "documentation"} {
				if image.Config.Labels["org.opencontainers.image."+label] == "" {
					t.Errorf("it has no label %s", label)
				}
			}
			files := map[string][]byte{}
			for _, l := range manifest.Layers {
				maps.Copy(files, readTar(t, bytes.NewReader(blobs[blob(l.Digest)])))
			}
			if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, []string{"etc/ssl/certs/ca-certificates.crt", name}) {
				t.Errorf("it holds %v", got)
			}
			checkProgram(t, files[name])
		})
	}
}

func checkProgram(t *testing.T, program []byte) {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	must(t, err)
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["CGO_ENABLED"] != "0" || settings["-trimpath"] != "true" || settings["vcs.revision"] == "" {
		t.Errorf("built with %v", settings)
	}
	if want := os.Getenv("FIPS") == "1"; strings.HasPrefix(settings["GOFIPS140"], "v1.0.0") != want {
		t.Errorf("GOFIPS140 is %q although FIPS is %v", settings["GOFIPS140"], want)
	}
}

func blob(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }

func decode(t *testing.T, text []byte, v any) {
	t.Helper()
	must(t, json.Unmarshal(text, v))
}

func openFile(t *testing.T, name string) io.Reader {
	t.Helper()
	f, err := os.Open(name)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// readTar returns the files of an archive, be it compressed or not.
func readTar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	text, err := io.ReadAll(r)
	must(t, err)
	r = bytes.NewReader(text)
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		r, err = gzip.NewReader(r)
		must(t, err)
	}
	files := map[string][]byte{}
	for a := tar.NewReader(r); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		if h.Typeflag == tar.TypeReg {
			body, err := io.ReadAll(a)
			must(t, err)
			files[h.Name] = body
		}
	}
}
