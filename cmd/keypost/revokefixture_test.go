package main

import (
	"os"

	"github.com/rogpeppe/go-internal/testscript"
)

// mergeConflict leaves in a file what a merge of two versions leaves there: conflict OURS THEIRS FILE
func mergeConflict(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: conflict OURS THEIRS FILE")
	}
	text := "<<<<<<< HEAD\n" + ts.ReadFile(args[0]) + "=======\n" + ts.ReadFile(args[1]) + ">>>>>>> theirs\n"
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(text), 0o600))
}
