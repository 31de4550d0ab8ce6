package registry

import (
	"fmt"
	"strings"
)

// CheckSubject returns an error for a text that is no subject without wildcards.
func CheckSubject(text string) error {
	bad := text == "" || len(text) > 200 || strings.ContainsAny(text, " \t\r\n*>") ||
		strings.HasPrefix(text, ".") || strings.HasSuffix(text, ".") || strings.Contains(text, "..")
	if bad {
		return fmt.Errorf("is %q, want a subject such as penstock.workers.orders", text)
	}
	return nil
}
