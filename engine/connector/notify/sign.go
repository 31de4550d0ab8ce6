package notify

import (
	"fmt"
	nethttp "net/http"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/reread"
	"github.com/penstock-io/penstock/inbox"
	"github.com/penstock-io/penstock/stream"
)

// Headers of Standard Webhooks.
const (
	headerWebhookID        = "Webhook-Id"
	headerWebhookTimestamp = "Webhook-Timestamp"
	headerWebhookSignature = "Webhook-Signature"
)

// Sign configures the signatures of requests. Each attempt is signed when it is made. The store
// contains neither keys nor signatures.
type Sign struct {
	Webhooks Webhooks  `yaml:"standard_webhooks" doc:"sign with the headers webhook-id, webhook-timestamp and webhook-signature"`
	HMAC     HMAC      `yaml:"hmac" doc:"sign with an HMAC of the body in one header"`
	KeysFile string    `yaml:"keys_file" path:"true" doc:"JSON file with secrets by name, in place of secrets; reread when it changes"`
	Key      expr.Text `yaml:"key" doc:"an expression: the name in keys_file, such as the merchant's"`

	keys *reread.File[map[string][]string]
}

// Webhooks configures signatures according to the specification Standard Webhooks.
type Webhooks struct {
	On      bool     `yaml:"on" doc:"sign with keys_file; implied by secrets"`
	Secrets []string `yaml:"secrets" secret:"true" doc:"secrets, each whsec_ and base64; all of them sign, so that keys can be rotated"`
}

// HMAC configures a signature in a custom header.
type HMAC struct {
	Header    string `yaml:"header" doc:"name of the header; its value is the HMAC in hexadecimal digits"`
	Prefix    string `yaml:"prefix" doc:"text before the digits, such as sha256="`
	Secret    string `yaml:"secret" secret:"true" doc:"secret key; its bytes are used unchanged"`
	Algorithm string `yaml:"algorithm" enum:"sha1,sha256,sha512" doc:"hash function"`
}

func (s *Sign) webhooks() bool { return s.Webhooks.On || len(s.Webhooks.Secrets) > 0 }

func (s *Sign) validate() error {
	if len(s.Webhooks.Secrets) > 0 {
		if _, err := inbox.NewStandardWebhooks(0, s.Webhooks.Secrets...); err != nil {
			return stream.OptionErrorf("sign.standard_webhooks.secrets", "%w", err)
		}
	}
	if s.HMAC.Header != "" {
		if reason := checkHeaderName(s.HMAC.Header); reason != "" {
			return stream.OptionErrorf("sign.hmac.header", "%s", reason)
		}
		algorithms := []string{string(inbox.SHA1), string(inbox.SHA256), string(inbox.SHA512)}
		if !slices.Contains(algorithms, s.HMAC.Algorithm) {
			return stream.OptionErrorf("sign.hmac.algorithm", "is not one of sha1, sha256, sha512")
		}
	}
	switch {
	case (s.KeysFile == "") != (s.Key == ""):
		return stream.OptionErrorf("sign.keys_file", "keys_file and key need each other")
	case s.KeysFile == "" && s.Webhooks.On && len(s.Webhooks.Secrets) == 0:
		return stream.OptionErrorf("sign.standard_webhooks.secrets", "is empty; write secrets, "+
			"or keys_file and key")
	case s.KeysFile == "" && s.HMAC.Header != "" && s.HMAC.Secret == "":
		return stream.OptionErrorf("sign.hmac.secret", "is empty; write it, or keys_file and key")
	case s.KeysFile != "" && !s.webhooks() && s.HMAC.Header == "":
		return stream.OptionErrorf("sign.keys_file", "nothing is signed; write "+
			"standard_webhooks: {on: true}, or hmac")
	}
	if s.KeysFile != "" {
		s.keys = &reread.File[map[string][]string]{
			Path: s.KeysFile, Shape: "an object of lists of texts",
		}
		if _, err := s.keys.Read(); err != nil {
			return stream.OptionErrorf("sign.keys_file", "%w", err)
		}
	}
	return nil
}

// check returns an error if the keys file has no secrets with the given name. An unreadable file is
// no error, because each attempt reads it again.
func (s *Sign) check(name string) error {
	if s.keys == nil {
		return nil
	}
	keys, err := s.keys.Read()
	if err != nil {
		return nil // each attempt reads the file again
	}
	if len(keys[name]) == 0 {
		return fmt.Errorf("sign.key: keys_file has no key %.50q", name)
	}
	return nil
}

// sign adds signatures to the headers of an attempt. The parameter now is the time of the
// signatures. After an error, the request must not be sent.
func (s *Sign) sign(header nethttp.Header, id, signer string, body []byte, now time.Time) error {
	secrets, plain := s.Webhooks.Secrets, []string{s.HMAC.Secret}
	if s.keys != nil {
		keys, err := s.keys.Read()
		if err != nil {
			return fmt.Errorf("sign.keys_file: %w", err)
		}
		if secrets = keys[signer]; len(secrets) == 0 {
			return fmt.Errorf("sign.keys_file has no key %.50q", signer)
		}
		plain = secrets
	}
	if s.webhooks() {
		webhooks, err := inbox.NewStandardWebhooks(0, secrets...)
		if err != nil {
			return fmt.Errorf("sign: %w", err)
		}
		webhooks.Sign(header, id, body, now)
	}
	if s.HMAC.Header == "" {
		return nil
	}
	simple := inbox.HMAC{
		Header: s.HMAC.Header, Prefix: s.HMAC.Prefix,
		Algorithm: inbox.Algorithm(s.HMAC.Algorithm), Secrets: plain,
	}
	if err := simple.Sign(header, body); err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	return nil
}
