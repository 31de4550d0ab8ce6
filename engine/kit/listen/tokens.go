package listen

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"

	"github.com/penstock-io/penstock/stream"
)

// Tokens maps names of holders to their secrets.
type Tokens map[string]string

// minToken is the minimum length of a token.
const minToken = 8

// CheckTokens checks the options `token` and `tokens`.
func CheckTokens(token string, tokens Tokens) error {
	fail := func(key, format string, args ...any) error {
		return &stream.OptionError{Key: key, Err: fmt.Errorf(format, args...)}
	}
	if token != "" && len(tokens) > 0 {
		return fail("token", "cannot be combined with tokens; add it there with a name")
	}
	if token != "" && len(token) < minToken {
		return fail("token", "has fewer than %d characters; write a longer one", minToken)
	}
	for name, value := range tokens {
		if len(value) < minToken {
			return fail("tokens."+name, "has fewer than %d characters; write a longer one",
				minToken)
		}
	}
	return nil
}

// Keyring maps tokens to their holders.
type Keyring struct {
	names  []string
	hashes [][sha256.Size]byte
}

// NewKeyring returns the keyring of the options `token`, with an unnamed holder, and `tokens`.
func NewKeyring(token string, tokens Tokens) *Keyring {
	k := &Keyring{}
	if token != "" {
		k.names, k.hashes = append(k.names, ""), append(k.hashes, sha256.Sum256([]byte(token)))
	}
	for name, value := range tokens {
		k.names, k.hashes = append(k.names, name), append(k.hashes, sha256.Sum256([]byte(value)))
	}
	return k
}

// Empty reports whether there is no token.
func (k *Keyring) Empty() bool { return len(k.names) == 0 }

// Holder returns the name of the holder of a token. Its running time does not depend on the token
// (constant time).
func (k *Keyring) Holder(token string) (name string, ok bool) {
	hash := sha256.Sum256([]byte(token))
	for i := range k.hashes {
		if subtle.ConstantTimeCompare(hash[:], k.hashes[i][:]) == 1 {
			name, ok = k.names[i], true
		}
	}
	return name, ok
}
