package shield

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	oldSecret = "the-old-secret-0123456789"
	newSecret = "the-new-secret-0123456789"
)

func TestShieldErrors(t *testing.T) {
	dir := t.TempDir()
	files := 0
	file := func(text string) string {
		files++
		path := filepath.Join(dir, strconv.Itoa(files))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file(newSecret)
	long := strings.Repeat("0123456789abcdef", 256) // 4,096 characters
	for text, secret := range map[string]string{"0123456789abcdef": "0123456789abcdef", newSecret + "\r\n": newSecret, newSecret + "\n\n": newSecret, long: long} {
		s, err := New(Config{Header: "X-A", SecretFiles: []string{file(text)}})
		if err != nil || !s.knows(secret) || s.knows(text) != (text == secret) {
			t.Errorf("a secret of %d characters in a file of %d: %v", len(secret), len(text), err)
		}
	}
	for name, tt := range map[string]struct {
		c    Config
		want string
	}{
		"only header":        {Config{Header: "X-A"}, "at least one file"},
		"only secret":        {Config{SecretFiles: []string{good}}, "needs its name"},
		"a common header":    {Config{Header: "user-agent", SecretFiles: []string{good}}, "not a header that only a CDN sends"},
		"no header name":     {Config{Header: "X A", SecretFiles: []string{good}}, "not a header that only a CDN sends"},
		"with its name":      {Config{Header: "x-a", SecretFiles: []string{file("X-A: 0123456789abcdef")}}, "write only the value"},
		"in quotes":          {Config{Header: "X-A", SecretFiles: []string{file(`"0123456789abcdef"`)}}, "write only the value"},
		"short secret":       {Config{Header: "X-A", SecretFiles: []string{good, file("short")}}, "one line of 16"},
		"15 characters":      {Config{Header: "X-A", SecretFiles: []string{file("0123456789abcde")}}, "one line of 16"},
		"two lines":          {Config{Header: "X-A", SecretFiles: []string{file(newSecret + "\n" + oldSecret)}}, "one line of 16"},
		"space behind it":    {Config{Header: "X-A", SecretFiles: []string{file(newSecret + " ")}}, "one line of 16"},
		"a carriage return":  {Config{Header: "X-A", SecretFiles: []string{file(newSecret + "\r" + oldSecret)}}, "one line of 16"},
		"too long":           {Config{Header: "X-A", SecretFiles: []string{file(long + "0")}}, "larger than 4096 bytes"},
		"no file":            {Config{Header: "X-A", SecretFiles: []string{dir + "/none"}}, "read the value of X-A"},
		"no CA file":         {Config{ClientCAFile: dir + "/none"}, "read the CA of client certificates"},
		"a CA file with key": {Config{ClientCAFile: good}, "holds no PEM certificate"},
	} {
		if _, err := New(tt.c); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), newSecret) {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
}
