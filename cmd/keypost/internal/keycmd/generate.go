package keycmd

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/internal/signingkey"
	"github.com/keypost/keypost/keystore"
)

type generateOptions struct {
	*cli.Factory
	dir, kind string
}

func newGenerate(f *cli.Factory) *cobra.Command {
	o := &generateOptions{Factory: f}
	cmd := f.Command("generate --out DIR", "Generate a signing key for a cluster", cobra.ExactArgs(0), o.run)
	cmd.Long = "Generate a signing key: the private half for kube-apiserver --service-account-signing-key-file, the public half\n" +
		"for keypost issuer add, rotate start or key add. Files are never overwritten. The private key stays on this machine."
	cmd.Example = "  keypost key generate --type p256 --out next"
	fs := cmd.Flags()
	fs.StringVar(&o.dir, "out", "", "`DIR` to write sa.key and sa.pub to")
	fs.StringVar(&o.kind, "type", string(signingkey.RSA3072), "rsa2048, rsa3072, rsa4096, p256, p384 or p521; Entra accepts RSA only")
	cli.Choices(fs, "type", signingkey.Kinds()...)
	return cmd
}

func (o *generateOptions) run(context.Context, []string) error {
	paths := signingkey.Paths{Private: filepath.Join(o.dir, "sa.key"), Public: filepath.Join(o.dir, "sa.pub")}
	if !slices.Contains(signingkey.Kinds(), signingkey.Kind(o.kind)) {
		return cli.Usagef("--type %q: use one of %v", o.kind, signingkey.Kinds())
	}
	if err := cli.MakeDir("--out "+o.dir, o.dir, 0o700); err != nil {
		return err
	}
	if err := paths.CheckFree(); err != nil {
		return cli.WithHint(err, "move it away, or choose another place")
	}
	key, err := signingkey.Generate(signingkey.Kind(o.kind))
	if err != nil {
		return err
	}
	if err := key.Write(paths); err != nil {
		return err
	}
	return printGenerated(o.Factory, key.Public(), paths)
}

func printGenerated(f *cli.Factory, k keystore.VerificationKey, paths signingkey.Paths) error {
	v := struct {
		Kid     keystore.KeyID `json:"kid"`
		Alg     string         `json:"alg"`
		Private string         `json:"privateKeyFile"`
		Public  string         `json:"publicKeyFile"`
	}{k.ID(), k.Alg(), paths.Private, paths.Public}
	err := f.Print(v, func(w *terminal.Table) {
		w.Row("kid:", v.Kid)
		w.Row("alg:", v.Alg)
		w.Row("private key:", v.Private)
		w.Row("public key:", v.Public)
	})
	f.Notice("next:")
	f.Notice("  for a new issuer: %s", cli.Command{"issuer", "add", "NAME", "--url", "URL", "--public-key-file", paths.Public})
	f.Notice("  to replace the signing key: %s", cli.Command{"rotate", "start", "ISSUER", "--public-key-file", paths.Public})
	f.Notice("  to publish it only: %s", cli.Command{"key", "add", "ISSUER", "--public-key-file", paths.Public})
	return err
}
