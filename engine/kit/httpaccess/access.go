// Package httpaccess has the options that HTTP clients share: users, tokens, certificates, proxies
// and headers.
package httpaccess

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	nethttp "net/http"
	"os"
	"strings"
	"sync"

	"github.com/penstock-io/penstock/engine/kit/tlsaccess"
)

// Basic is a user name and its password.
type Basic struct {
	User     string `yaml:"user" required:"true" doc:"user name"`
	Password string `yaml:"password" secret:"true" doc:"write ${file:/path} to keep it out of the config"`
}

// TLS holds the TLS options of a client; see [tlsaccess.TLS].
type TLS = tlsaccess.TLS

// Trust is the TLS configuration of a client; see [tlsaccess.Trust].
type Trust = tlsaccess.Trust

// NewTrust reads the files of o; see [tlsaccess.NewTrust].
func NewTrust(o *TLS, log *slog.Logger) (*Trust, error) { return tlsaccess.NewTrust(o, log) }

// maxToken is the maximum size of a file with a token, in bytes.
const maxToken = 64 << 10

// Token has the value of the header Authorization. A token from a file can be read again when a
// server refuses it. A Token is safe for concurrent use.
type Token struct {
	file string // "" if the token never changes

	mu     sync.Mutex // guards header
	header string
}

// NewToken returns the token of the option that is set: basic, bearer or bearerFile. For
// bearerFile, it reads the file. If none of the options is set, it returns an empty Token.
func NewToken(basic *Basic, bearer, bearerFile string) (*Token, error) {
	switch {
	case basic != nil:
		r := nethttp.Request{Header: make(nethttp.Header)}
		r.SetBasicAuth(basic.User, basic.Password)
		return &Token{header: r.Header.Get("Authorization")}, nil
	case bearer != "":
		return &Token{header: "Bearer " + bearer}, nil
	case bearerFile != "":
		t := &Token{file: bearerFile}
		return t, t.Read()
	}
	return &Token{}, nil
}

// Header returns the value of the header, or "" if there is no token.
func (t *Token) Header() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.header
}

// Read reads the token again if it is from a file. After an error, the old token stays.
func (t *Token) Read() error {
	if t.file == "" {
		return nil
	}
	f, err := os.Open(t.file)
	if err != nil {
		return fmt.Errorf("bearer_file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	word := strings.TrimSpace(string(text))
	switch {
	case err != nil:
	case word == "":
		err = errors.New("it is empty")
	case len(text) > maxToken:
		err = fmt.Errorf("it is longer than %d bytes", maxToken)
	}
	if err == nil {
		err = CheckToken(word)
	}
	if err != nil {
		return fmt.Errorf("bearer_file: %s: %w", t.file, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.header = "Bearer " + word
	return nil
}

// CheckToken returns an error if the token has a character that is not allowed in a token. The
// error does not contain the token.
func CheckToken(token string) error {
	if strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c >= 0x7F }) {
		return errors.New("has a space, control or non-ASCII character, so it is not a " +
			"token; check the file")
	}
	return nil
}

// CheckHeader returns an error for an invalid header. The error does not contain the value, which
// may be a token.
func CheckHeader(name, value string) error {
	const special = "!#$%&'*+-.^_`|~"
	for _, c := range []byte(name) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') &&
			strings.IndexByte(special, c) < 0 {
			return fmt.Errorf("the name has %q, which is not allowed in a header name", c)
		}
	}
	if name == "" {
		return errors.New("the name is empty")
	}
	for _, c := range []byte(value) {
		if c < ' ' && c != '\t' || c == 0x7F {
			return fmt.Errorf("the value has the control character %#x, which is not allowed", c)
		}
	}
	return nil
}
