package registry

import (
	"fmt"
	"strings"
)

// CheckSubject returns an error if text is not a valid subject or has wildcards.
func CheckSubject(text string) error {
	bad := text == "" || len(text) > 200 || strings.ContainsAny(text, " \t\r\n*>") ||
		strings.HasPrefix(text, ".") || strings.HasSuffix(text, ".") || strings.Contains(text, "..")
	if bad {
		return fmt.Errorf("is %q, want a subject such as penstock.workers.orders", text)
	}
	return nil
}
