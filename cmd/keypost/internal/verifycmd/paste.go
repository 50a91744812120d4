package verifycmd

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/issuer/verify/token"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/cluster"
)

// pasted returns the repair of a finding with commands that can be pasted: what this run knows stands in the place of ISSUER, NAME,
// FILE and SERVICEACCOUNT, and the flags that it was given and that the next command needs stand after it.
func (opts *verifyOptions) pasted(f finding.Finding, t target) string {
	var b strings.Builder
	rest := f.Repair
	for {
		i, program := nextCommand(rest)
		if i < 0 {
			return b.String() + rest
		}
		end := i + commandEnd(rest[i:])
		line := strings.TrimRight(rest[i:end], " ")
		space := rest[i+len(line) : end]
		words := splitWords(line)
		if program == "keypost" {
			line = opts.ours(words, line, f, t)
		} else if strings.HasPrefix(f.Code, "token-") { // what is about the cluster names it already
			line = opts.kubectl(words, t)
		}
		b.WriteString(rest[:i] + line + space)
		rest = rest[end:]
	}
}

// ours returns a command of keypost with what is known. Its words alone, such as "keypost aws create-role", are a mention.
func (opts *verifyOptions) ours(words []string, line string, f finding.Finding, t target) string {
	cmd, args, err := opts.root().Find(words[1:])
	if err != nil || !cmd.Runnable() || len(args) == 0 || cmd.Name() == "generate" {
		return line
	}
	name := string(t.set.Name())
	for i, w := range words {
		switch before := words[i-min(i, 1)]; {
		case w == "ISSUER" && name != "":
			words[i] = name
		case w == "ISSUER":
			words[i] = t.URL
		case w == "NAME" && name != "":
			words[i] = name
		case w == "KID":
			words[i] = t.keyOf(f)
		case w == "FILE" && before == "--kubeconfig" && opts.cluster.Kubeconfig != "":
			words[i] = opts.cluster.Kubeconfig
		case w == "FILE" && before == "--token-file" && opts.tokenFile != "":
			words[i] = opts.tokenFile
		case w == "HOST:PORT" && before == "--connect" && len(f.At) == 1 && strings.HasPrefix(f.Code, "origin-"):
			words[i] = f.At[0]
		}
	}
	add := func(flag, value string) {
		if value != "" && !slices.Contains(words, flag) {
			words = append(words, flag, value)
		}
	}
	path := strings.TrimPrefix(cmd.CommandPath(), "keypost ")
	if slices.Contains(words, "--kubeconfig") {
		add("--context", opts.cluster.Context)
	}
	looks := slices.Contains([]string{"verify", "issuer observe", "key promote", "rotate step"}, path)
	if looks {
		add("--ca-file", opts.caFile)
	}
	if slices.Contains(words, "--kubeconfig") && slices.Contains([]string{"verify", "rotate step"}, path) {
		for _, server := range slices.Sorted(maps.Keys(opts.cluster.Reach)) {
			words = append(words, "--apiserver", server+"="+opts.cluster.Reach[server])
		}
	}
	if path == "verify" && opts.dev {
		words = append(words, "--dev")
	}
	if path == "verify" {
		add("--connect", opts.connect)
	}
	if looks {
		words = append(words, opts.shieldFlags(words, t)...)
	}
	if slices.Contains(words, "--wait") && opts.f.Observations == "" { // it looks itself, and records that
		add("--observations", cli.UnknownPlace)
	}
	if slices.Contains(words, "--store") {
		return cli.Quoted(words...)
	}
	return opts.f.Line(words[1:])
}

// unforced returns a finding whose repair forces a gate without --force where the gate of its key is open by what was recorded.
func (opts *verifyOptions) unforced(ctx context.Context, f finding.Finding, t target) finding.Finding {
	if k, stored := t.set.Key(keystore.KeyID(f.Kid)); stored && f.Code == "active-none" && observe.MayPromote(ctx, opts.f, *t.set, k) {
		f.Repair = strings.Replace(f.Repair, " --force --why REASON --confirm-kid KID", "", 1)
	}
	return f
}

// shieldFlags returns the flags of the shield that a command which looks at an issuer lacks: those of this run; and what a replica is
// asked as whose address is still to be filled in, since behind a CDN it may have a certificate for the name of its origin alone.
func (opts *verifyOptions) shieldFlags(words []string, t target) []string {
	as := t.set.Policy().Origins
	as = slices.DeleteFunc(slices.Clone(as), func(origin string) bool { return len(verify.NamesOf(origin)) == 0 })
	if !slices.Contains(words, "HOST:PORT") || len(as) > mostAs {
		as = nil
	}
	return opts.shield.Lacking(words, as)
}

// mostAs is how many origins a command for one replica names.
const mostAs = 4

// keyOf returns the kid of the stored key that a finding is about, else the placeholder.
func (t target) keyOf(f finding.Finding) string {
	if k, stored := t.set.Key(keystore.KeyID(f.Kid)); stored {
		return string(k.ID())
	}
	return "KID"
}

// kubectl returns a command for the cluster of the run and the service account of the token.
func (opts *verifyOptions) kubectl(words []string, t target) string {
	if found := strings.Split(token.Read(t.Token).Subject, ":"); len(found) == 4 && found[0]+":"+found[1] == "system:serviceaccount" {
		if i := slices.Index(words, "SERVICEACCOUNT"); i >= 0 {
			words[i] = found[3]
			words = append(words, "--namespace", found[2])
		}
	}
	if opts.cluster.Kubeconfig != "" && opts.cluster.Kubeconfig != cluster.InCluster {
		words = append(words, "--kubeconfig", opts.cluster.Kubeconfig)
	}
	if opts.cluster.Context != "" {
		words = append(words, "--context", opts.cluster.Context)
	}
	return cli.Quoted(words...)
}

// nextCommand returns where the first command in a sentence begins, and its program; -1 if there is none.
func nextCommand(s string) (at int, program string) {
	at = -1
	for _, p := range []string{"keypost", "kubectl"} {
		for from := 0; ; {
			i := strings.Index(s[from:], p+" ")
			if i < 0 {
				break
			}
			i += from
			if (i == 0 || strings.ContainsRune(" (", rune(s[i-1]))) && (at < 0 || i < at) {
				at, program = i, p
			}
			from = i + len(p)
		}
	}
	return at, program
}

// commandEnd returns the length of the command that a text begins with: it ends with the clause, outside quotes.
func commandEnd(s string) int {
	quoted := false
	for i := 0; i < len(s); i++ {
		last := i == len(s)-1 || s[i+1] == ' '
		switch c := s[i]; {
		case c == '\'':
			quoted = !quoted
		case quoted:
		case c == '\\':
			i++
		case c == ')' || c == '(' || c == ';' || c == '&' || (c == ',' || c == ':') && last:
			return i
		}
	}
	return len(s)
}

// splitWords splits a command as a POSIX shell does, where single quotes and backslashes quote.
func splitWords(line string) []string {
	var words []string
	word, quoted, open := "", false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\'':
			quoted, open = !quoted, true
		case c == ' ' && !quoted:
			if open {
				words = append(words, word)
			}
			word, open = "", false
		case c == '\\' && !quoted && i+1 < len(line):
			i++
			fallthrough
		default:
			word, open = word+line[i:i+1], true
		}
	}
	if open {
		words = append(words, word)
	}
	return words
}
