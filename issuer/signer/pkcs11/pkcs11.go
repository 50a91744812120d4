// Package pkcs11 uses the private keys of a PKCS#11 token, such as an HSM's, for package signer. The private halves never leave the token.
// It needs cgo, so only a build with the tag pkcs11 has it; in any other build Open returns an error.
package pkcs11

// Token says which token holds the keys.
type Token struct {
	Module string // path of the vendor's library
	Label  string // label of the token
	PIN    string // file with the user's PIN, mode 0600
}
