package iam

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/google/uuid"
)

// Suffixed returns a name that Azure takes, with a hash in its end.
func Suffixed(name, hashed string) string {
	sum := sha256.Sum256([]byte(hashed))
	clean := strings.ReplaceAll(name, ".", "-")
	return clean[:min(len(clean), 111)] + "-" + hex.EncodeToString(sum[:4])
}

// guid returns a name for a role or an assignment that is the same in every run: made of what it stands for, in lower case, since
// Azure gives IDs back in varying letter case. So a creation whose answer was lost is found again.
func guid(parts ...string) string {
	space := uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://keypost.dev/azure"))
	return uuid.NewSHA1(space, []byte(Folded(strings.Join(parts, "\n")))).String()
}

// last returns the last part of an ID, in lower case: for roles and assignments the GUID, which is unique in the tenant.
func last(id string) string {
	return Folded(id[strings.LastIndexByte(id, '/')+1:])
}

// location returns a region's name in the form in which regions are compared: some answers have "Central US" for "centralus".
func location(s string) string { return Folded(strings.ReplaceAll(s, " ", "")) }
