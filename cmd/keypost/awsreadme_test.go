package main

import (
	"os"
	"regexp"
	"testing"
)

func provisionReadme(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile("../../provision/aws/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}
