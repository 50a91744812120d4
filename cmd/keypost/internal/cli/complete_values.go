package cli

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/open"
)

// line is what somebody has typed of a command: its flags are parsed, and word is what is to be completed.
type line struct {
	*Factory
	cmd  *cobra.Command
	args []string
	word string
}

// completion returns a completion by values, of which those that begin like the word are offered. What is not there in time is
// not offered.
func (f *Factory) completion(values func(ctx context.Context, l line) []string, directive cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		found := make(chan []string, 1)
		go func() { found <- values(ctx, line{f, cmd, args, word}) }()
		select {
		case list := <-found:
			return beginning(list, word), directive
		case <-ctx.Done(): // also where reading cannot be interrupted, such as from a file server that is gone
			return nil, directive
		}
	}
}

// plainWord is what every shell takes for one word that is itself, and no command of ours takes for a flag.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_@%+=:,./?-]*$`)

// beginning returns those of the values that begin with word, and that are plain words: others are left out, in all shells alike.
// Values are what a store, a file or a directory holds, and others may have chosen them: an imported kid may be `touch${IFS}x`. bash
// inserts what several values have in common without quoting it, and cobra's script evaluates the line at the next Tab, so that the
// value would run. A value that begins with a hyphen would be taken for a flag. After a tab comes what is said about a value.
func beginning(list []string, word string) []string {
	var some []string
	for _, v := range list {
		value, about, described := strings.Cut(v, "\t")
		if !strings.HasPrefix(value, word) || !plainWord.MatchString(value) {
			continue
		}
		if described {
			value += "\t" + OneLine(about)
		}
		some = append(some, value)
	}
	return some
}

// issuers completes the name of a key set, and an issuer URL that was begun.
func issuers(ctx context.Context, l line) []string {
	if strings.HasPrefix(l.word, "https:") {
		return issuerURLs(ctx, l)
	}
	st, err := l.OpenStore(ctx)
	if err != nil {
		return nil
	}
	listed, err := st.List(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for _, n := range slices.Sorted(maps.Keys(listed)) {
		if !slices.Contains(l.args, string(n)) {
			names = append(names, string(n))
		}
	}
	return names
}

// issuerURLs completes an issuer URL that is in use.
func issuerURLs(ctx context.Context, l line) []string {
	st, err := l.OpenStore(ctx)
	if err != nil {
		return nil
	}
	c, err := catalog.ReadAll(ctx, st)
	if err != nil {
		return nil
	}
	var urls []string
	for _, s := range c.Sets {
		for _, u := range s.Issuers() {
			if !s.Withdrawn() && !slices.Contains(l.args, u.String()) {
				urls = append(urls, u.String()+"\t"+string(s.Name()))
			}
		}
	}
	return urls
}

// set returns the key set that the first argument names.
func (l line) set(ctx context.Context) (keystore.KeySet, bool) {
	if len(l.args) == 0 {
		return keystore.KeySet{}, false
	}
	s, err := l.Find(ctx, l.args[0])
	return s, err == nil
}

// kids returns the keys that a verb of keypost key may be for, with their states; without one, all.
func (l line) kids(ctx context.Context, verb string) []string {
	s, _ := l.set(ctx)
	states := map[string][]keystore.State{
		"promote": {keystore.Next, keystore.Retired}, "retire": {keystore.Active}, "remove": {keystore.Next, keystore.Retired},
	}[verb]
	var list []string
	for _, k := range s.Keys() {
		if states == nil || slices.Contains(states, k.State) {
			list = append(list, string(k.ID())+"\t"+string(k.State))
		}
	}
	return list
}

// ofPolicy completes a value that the policy of the key set lists.
func ofPolicy(values func(keystore.Policy) []string) func(ctx context.Context, l line) []string {
	return func(ctx context.Context, l line) []string {
		s, _ := l.set(ctx)
		return values(s.Policy())
	}
}

// contexts completes a context of the kubeconfig that --kubeconfig names, or kubectl would take.
func contexts(_ context.Context, l line) []string {
	file := ""
	if flag := l.cmd.Flag("kubeconfig"); flag != nil {
		file = flag.Value.String()
	}
	return slices.Sorted(maps.Keys(kubeapi.Contexts(file)))
}

// storeURLs completes a store's URL step by step: its scheme, then directories, namespaces or parameters.
func storeURLs(_ context.Context, l line) []string {
	scheme, rest, isURL := strings.Cut(l.word, "://")
	if !isURL {
		return []string{"file:///\ta directory", "file://./\ta directory", "kubernetes://\ta namespace", "s3://\ta bucket"}
	}
	if scheme == "file" {
		return directoryURLs(rest)
	}
	place, query, asked := strings.Cut(rest, "?")
	if !asked {
		return places(scheme)
	}
	name, _, valued := strings.Cut(query, "=") // of the first parameter: a line with a further one has to quote its "&"
	var list []string
	switch {
	case valued && scheme == "kubernetes" && name == "context":
		for _, c := range slices.Sorted(maps.Keys(kubeapi.Contexts(""))) {
			list = append(list, scheme+"://"+place+"?context="+c)
		}
	case !valued:
		for _, p := range open.Parameters(scheme) {
			list = append(list, scheme+"://"+place+"?"+p+"=")
		}
	}
	return list
}

// places returns the namespaces that a kubeconfig names.
func places(scheme string) []string {
	if scheme != "kubernetes" {
		return nil
	}
	seen := map[string]bool{}
	for _, namespace := range kubeapi.Contexts("") {
		if namespace != "" {
			seen["kubernetes://"+namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// directoryURLs returns the directories beside and below a path that was begun.
func directoryURLs(path string) []string {
	dir := path[:strings.LastIndex(path, "/")+1]
	u, err := open.Parse("file://" + dir)
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir(u.Dir)
	if err != nil {
		return nil
	}
	var list []string
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(u.Dir, e.Name())) // a link may lead to a directory
		if err == nil && info.IsDir() && (!strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(path[len(dir):], ".")) {
			list = append(list, "file://"+dir+strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23").Replace(e.Name())+"/")
		}
	}
	return list
}
