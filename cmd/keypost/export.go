package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
)

func (a *app) export() *cobra.Command {
	return &cobra.Command{Use: "export DIR [ISSUER…]", Short: "Write the served bytes as files", Args: cobra.MinimumNArgs(1),
		RunE: a.do(func(context.Context, []string) error { return errors.New("not yet") })}
}
