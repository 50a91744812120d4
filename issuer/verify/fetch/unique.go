package fetch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// checkUnique refuses JSON with a member twice in one object, also in other letter case: some relying parties take the first and some
// the last. Such a document shows one key to those who look and another to those who trust.
func checkUnique(data []byte) error {
	if !json.Valid(data) { // which bounds its depth, too
		return errors.New("it is not valid JSON")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // a number that no float64 holds is valid JSON
	return uniqueValue(d)
}

func uniqueValue(d *json.Decoder) error {
	open, err := d.Token()
	if err != nil {
		return err
	}
	if open != json.Delim('{') && open != json.Delim('[') {
		return nil
	}
	seen := map[string]bool{}
	for d.More() {
		if open == json.Delim('{') {
			name, err := d.Token()
			if err != nil {
				return err
			}
			folded := strings.ToLower(strings.ToUpper(fmt.Sprint(name)))
			if seen[folded] {
				return fmt.Errorf("it has the member %q twice in one object, perhaps in another letter case, and relying parties disagree on which of them counts", printable(fmt.Sprint(name)))
			}
			seen[folded] = true
		}
		if err := uniqueValue(d); err != nil {
			return err
		}
	}
	_, err = d.Token() // that closes it
	return err
}
