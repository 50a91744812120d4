package text

import "testing"

func TestQuoted(t *testing.T) {
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{[]string{"mkdir", "-p", "a/b"}, "mkdir -p a/b"},
		{[]string{"=ls", "a=b", "--x=y"}, "'=ls' a=b --x=y"},
		{[]string{"a b", "it's", "", "$HOME", "s3://b/p?region=x&profile=y"}, `'a b' 'it'\''s' '' '$HOME' 's3://b/p?region=x&profile=y'`},
	} {
		if got := Quoted(tt.words...); got != tt.want {
			t.Errorf("Quoted(%q) = %s, want %s", tt.words, got, tt.want)
		}
	}
}
