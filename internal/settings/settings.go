// Package settings reads a program's configuration file: strict YAML of at most 1 MiB, within five seconds.
package settings

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/internal/strictyaml"
	"github.com/keypost/keypost/internal/text"
)

// Max bounds the file, in bytes: a path to something huge is a mistake.
const Max = 1 << 20

// patience is how long the file may take. It may be a pipe, and what writes there needs some time.
const patience = 5 * time.Second

// Read returns what parse makes of a file. The error names the file.
func Read[T any](file string, parse func([]byte) (T, error)) (T, error) {
	var none T
	data, err := readFile(file)
	if err != nil {
		return none, fmt.Errorf("read configuration: %w", err)
	}
	c, err := parse(data)
	if err != nil {
		return none, fmt.Errorf("configuration %s: %w", file, err)
	}
	return c, nil
}

// readFile returns the bytes of a file, up to one more than [Max].
func readFile(file string) ([]byte, error) {
	return hang.Await(context.Background(), &hang.Guard{Patience: patience}, file, func() ([]byte, error) {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // nothing was written
		return io.ReadAll(io.LimitReader(f, Max+1))
	})
}

// Parse reads YAML into a struct that has its defaults. An unknown or repeated member is an error. The empty text
// changes nothing.
func Parse(data []byte, into any) error {
	asJSON, err := strictyaml.ToJSON(data, Max)
	if errors.Is(err, strictyaml.ErrEmpty) {
		asJSON, err = []byte("{}"), nil // the program's own check lists everything that is missing
	}
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(asJSON, into) // unlike encoding/json it distinguishes Dir and dir
	if err != nil {
		strict = append(strict, plain(err))
	}
	if len(strict) == 0 {
		return nil
	}
	var lines []string
	for _, err := range strict {
		lines = append(lines, text.Sentence(err.Error(), 0))
	}
	return errors.New(strings.Join(lines, "; "))
}

// plain says in YAML's words what encoding/json says of a value of the wrong kind.
func plain(err error) error {
	wrong := (*json.UnmarshalTypeError)(nil)
	if !errors.As(err, &wrong) {
		return err
	}
	is := map[string]string{"string": "text", "object": "a mapping", "array": "a list", "bool": "true or false"}[wrong.Value]
	want := map[reflect.Kind]string{
		reflect.Struct: "a mapping of settings", reflect.Map: "a mapping", reflect.Slice: "a list, such as [one]",
		reflect.Bool: "true or false, without quotes", reflect.Int: "a whole number, without quotes", reflect.Uint32: "a whole number of 0 or more, without quotes", reflect.String: "text, in quotes",
	}[wrong.Type.Kind()]
	return fmt.Errorf("%s is %s; it must be %s", cmp.Or(wrong.Field, "the file"), cmp.Or(is, "a number"), want)
}
