package commands

import (
	"slices"
	"strings"
	"testing"
)

func TestMarkdown(t *testing.T) {
	text := strings.ReplaceAll(`# Title
'''console
$ keypost --store file://./keysets issuer add prod-a \
    --url 'https://oidc.example.com/{name}'
added prod-a
$ kubectl create token default | keypost verify URL --token-file - > out
$ kubectl exec POD -- /keypost store copy A B
'''

Then "keypost key add" and ''keypost issuer set NAME --edge-hold 15m'' or ''make'', and ''keypost
issuer accept NAME''.

    make e2e     # long

    next ──promote──▶ active

- a list
    with a line that is not a block
'''text
--flag=keypost
'''
`, "''", "`")
	text = strings.ReplaceAll(text, "`'", "```")
	got, err := Markdown("a.md", text)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range got {
		lines = append(lines, c.String())
	}
	want := []string{
		"a.md:3: keypost --store file://./keysets issuer add prod-a --url https://oidc.example.com/{name}",
		"a.md:6: kubectl create token default",
		"a.md:6: keypost verify URL --token-file -",
		"a.md:7: kubectl exec POD -- /keypost store copy A B",
		"a.md:7: keypost store copy A B",
		"a.md:10: keypost issuer set NAME --edge-hold 15m",
		"a.md:10: keypost issuer accept NAME",
		"a.md:13: make e2e",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if got[0].Mention || !got[5].Mention {
		t.Error("a command in a sentence is not told from one in a block")
	}
}

func TestAfterStore(t *testing.T) {
	text := "`keypost key list NAME`\n\nWith KEYPOST_STORE set, `keypost key list NAME` and\n`keypost issuer list -o json`.\n"
	got, err := Markdown("a.md", text)
	if err != nil || len(got) != 3 {
		t.Fatalf("%v %v", got, err)
	}
	if afterStore(got, text); got[0].Stored || !got[1].Stored || !got[2].Stored {
		t.Errorf("%+v", got)
	}
	if afterStore(got[:1], "`keypost key list NAME`"); got[0].Stored {
		t.Error("a document that does not speak of it says that it is set")
	}
}

func TestHiddenCommandsAreErrors(t *testing.T) {
	for name, text := range map[string]string{
		"a command marked as text":       "```text\nhelm install x\n```\n",
		"a language that nobody checks":  "```bash\nhelm install x\n```\n",
		"a console block without prompt": "```console\nhelm install x\n```\n",
		"what no shell reads":            "```sh\nhelm install 'x\n```\n",
	} {
		if _, err := Markdown("a.md", text); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestNotesAndUnits(t *testing.T) {
	notes, err := Notes("NOTES.txt", "Next:\n  keypost issuer add NAME \\\n    --url U\n\nThen:\n  helm test r\n")
	if err != nil || len(notes) != 2 || strings.Join(notes[0].Words, " ") != "keypost issuer add NAME --url U" {
		t.Errorf("%v %v", notes, err)
	}
	units, err := unit("x.service", "#   STORE=s3://b/p\n#   MORE=--a=b --c=https://x/{name}\nExecStart=/usr/local/bin/keypost mirror --store ${STORE} $MORE /var/lib/keypost\n")
	if err != nil || len(units) != 1 || strings.Join(units[0].Words, " ") != "keypost mirror --store s3://b/p --a=b --c=https://x/{name} /var/lib/keypost" {
		t.Errorf("%v %v", units, err)
	}
}
