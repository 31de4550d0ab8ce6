package httpaccess

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTokenFile checks that a token file that is too long is refused rather than cut.
func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	for size, refused := range map[int]bool{0: true, maxToken: false, maxToken + 1: true} {
		if err := os.WriteFile(file, []byte(strings.Repeat("x", size)), 0o600); err != nil {
			t.Fatal(err)
		}
		token := &Token{file: file}
		if err := token.Read(); (err != nil) != refused {
			t.Errorf("%d bytes: %v, want an error: %v", size, err, refused)
		}
	}
}
