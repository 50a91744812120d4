package azure

// MovedAtTag is movedAtTag, for tests that see the package from outside.
func MovedAtTag(installation, old string) string { return movedAtTag(installation, old) }
