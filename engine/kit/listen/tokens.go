package listen

import (
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	nethttp "net/http"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// Tokens has a token for each name of a client.
type Tokens map[string]string

// minToken is the minimum length of a token.
const minToken = 8

// CheckTokens checks the options `token` and `tokens`.
func CheckTokens(token string, tokens Tokens) error {
	if token != "" && len(tokens) > 0 {
		return stream.OptionErrorf("token", "cannot be combined with tokens; add it there with a "+
			"name")
	}
	if token != "" && len(token) < minToken {
		return stream.OptionErrorf("token", "has fewer than %d characters; write a longer one",
			minToken)
	}
	owner := map[string]string{} // by token
	for _, name := range slices.Sorted(maps.Keys(tokens)) {
		value := tokens[name]
		if other, taken := owner[value]; taken {
			return stream.OptionErrorf("tokens."+name, "is also the token of %s; give each client "+
				"its own", other)
		}
		owner[value] = name
		if len(value) < minToken {
			return stream.OptionErrorf("tokens."+name, "has fewer than %d characters; write a "+
				"longer one", minToken)
		}
	}
	return nil
}

// Keyring finds the client to which a token belongs.
type Keyring struct {
	names  []string
	hashes [][sha256.Size]byte
}

// NewKeyring returns a keyring with the options `token` and `tokens`. The client with the token of
// the option `token` has no name.
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

// Authorize returns the name of the client that has sent an Authorization header. The header must
// be Bearer TOKEN, ApiKey TOKEN, or Basic with the token as the password. ok is false if the header
// has another form or the token is unknown.
func (k *Keyring) Authorize(header string) (name string, ok bool) {
	scheme, token, _ := strings.Cut(header, " ")
	switch strings.ToLower(scheme) {
	case "bearer", "apikey":
		return k.Holder(strings.TrimSpace(token))
	case "basic":
		r := nethttp.Request{Header: nethttp.Header{"Authorization": {header}}}
		if _, token, ok = r.BasicAuth(); ok {
			return k.Holder(token)
		}
	}
	return "", false
}

// Empty reports whether the keyring has no tokens.
func (k *Keyring) Empty() bool { return len(k.names) == 0 }

// Holder returns the name of the client to which a token belongs, and false if the token is
// unknown. The time that a call takes does not depend on how much of the token is right. So a
// client cannot guess a token from the time.
func (k *Keyring) Holder(token string) (name string, ok bool) {
	hash := sha256.Sum256([]byte(token))
	for i := range k.hashes {
		if subtle.ConstantTimeCompare(hash[:], k.hashes[i][:]) == 1 {
			name, ok = k.names[i], true
		}
	}
	return name, ok
}
