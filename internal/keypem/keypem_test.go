package keypem

import (
	"bytes"
	"encoding/pem"
	"errors"
	"slices"
	"testing"

	"github.com/keypost/keypost/internal/privatekey"
)

func block(label, data string) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: label, Bytes: []byte(data)})
}

func TestEach(t *testing.T) {
	a, b, private := block("A", "first"), block("B", "second"), block("EC PRIVATE KEY", "third")
	broken := func(pem []byte) []byte { return bytes.Replace(pem, []byte("\n"), []byte("\n!"), 1) }
	for name, tt := range map[string]struct {
		data   [][]byte
		labels []string
		err    error
	}{
		"nothing":              {nil, nil, nil},
		"text":                 {[][]byte{[]byte("hello")}, nil, nil},
		"two with text around": {[][]byte{[]byte("x\n"), a, []byte("y\n"), b, []byte("z")}, []string{"A", "B"}, nil},
		"damaged first":        {[][]byte{broken(a), b}, nil, errDamaged},
		"damaged last":         {[][]byte{a, broken(b)}, []string{"A"}, errDamaged},
		"cut off":              {[][]byte{a, b[:len(b)/2]}, []string{"A"}, errDamaged},
		"damaged and private":  {[][]byte{a, broken(private), b}, []string{"A"}, privatekey.ErrFound},
	} {
		var labels []string
		blocks, err := Each(bytes.Join(tt.data, nil), func(n int, b *pem.Block) error {
			if labels = append(labels, b.Type); n != len(labels) {
				t.Errorf("%s: block %s is number %d", name, b.Type, n)
			}
			return nil
		})
		if !slices.Equal(labels, tt.labels) || !errors.Is(err, tt.err) || err == nil && blocks != len(labels) {
			t.Errorf("%s: %q, %d blocks, %v", name, labels, blocks, err)
		}
	}
	stop := errors.New("stop")
	if n, err := Each(slices.Concat(a, b), func(int, *pem.Block) error { return stop }); n != 1 || !errors.Is(err, stop) {
		t.Errorf("it goes on after an error: %d, %v", n, err)
	}
}
