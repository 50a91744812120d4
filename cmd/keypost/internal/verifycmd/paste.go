package verifycmd

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/issuer/verify/token"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/cluster"
)

// command matches a command in a sentence: it goes to the end of the clause, outside quotes. word matches one of its words.
var (
	command = regexp.MustCompile(`\b(?:keypost|kubectl)(?: (?:'[^']*'|\\.|[^'\\();&,: ]|[,:][^ ])+)+`)
	word    = regexp.MustCompile(`(?:'[^']*'|\\.|[^'\\ ])+`)
)

// splitWords undoes [cli.Quoted].
func splitWords(line string) []string {
	words := word.FindAllString(line, -1)
	for i, w := range words {
		words[i] = strings.NewReplacer(`'\''`, "'", "'", "").Replace(w)
	}
	return words
}

// pasted returns the repair of a finding with commands that can be pasted: what this run knows stands in the place of ISSUER, NAME,
// KID, FILE and SERVICEACCOUNT, and the flags that it was given and that the next command needs stand after it.
func (opts *verifyOptions) pasted(f finding.Finding, t target) string {
	return command.ReplaceAllStringFunc(f.Repair, func(line string) string {
		words := splitWords(line)
		switch {
		case words[0] == "keypost":
			return opts.ours(words, line, f, t)
		case strings.HasPrefix(f.Code, "token-"): // what is about the cluster names it already
			return opts.kubectl(words, t)
		}
		return line
	})
}

// ours returns a command of keypost with what is known. Only its words, such as "keypost aws create-role", are a mention.
func (opts *verifyOptions) ours(words []string, line string, f finding.Finding, t target) string {
	cmd, args, err := opts.root().Find(words[1:])
	if err != nil || !cmd.Runnable() || len(args) == 0 || cmd.Name() == "generate" {
		return line
	}
	name := string(t.set.Name())
	known := map[string]string{
		"ISSUER": cmp.Or(name, t.URL), "NAME": name, "KID": t.keyOf(f),
		"--kubeconfig FILE": opts.cluster.Kubeconfig, "--token-file FILE": opts.tokenFile,
	}
	if len(f.At) == 1 && strings.HasPrefix(f.Code, "origin-") {
		known["--connect HOST:PORT"] = f.At[0]
	}
	for i, w := range words[1:] {
		words[i+1] = cmp.Or(known[w], known[words[i]+" "+w], w)
	}
	if slices.Contains(words, "--kubeconfig") && opts.cluster.Context != "" && !slices.Contains(words, "--context") {
		words = append(words, "--context", opts.cluster.Context)
	}
	if slices.Contains(words, "--wait") && opts.f.Observations == "" { // it looks itself, and records that
		words = append(words, "--observations", cli.UnknownPlace)
	}
	return opts.f.Line(words[1:])
}

// unforced returns a finding whose repair forces a gate without --force where the gate of its key is open by what was recorded.
func (opts *verifyOptions) unforced(ctx context.Context, f finding.Finding, t target) finding.Finding {
	if k, stored := t.set.Key(keystore.KeyID(f.Kid)); stored && f.Code == "active-none" && observe.MayPromote(ctx, opts.f, *t.set, k) {
		f.Repair = strings.Replace(f.Repair, " --force --why REASON", "", 1)
	}
	return f
}

// keyOf returns the kid of the stored key that a finding is about; empty if it is about none.
func (t target) keyOf(f finding.Finding) string {
	k, _ := t.set.Key(keystore.KeyID(f.Kid))
	return string(k.ID())
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
