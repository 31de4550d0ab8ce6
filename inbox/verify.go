package inbox

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Message is a notification with a valid signature.
type Message struct {
	// ID identifies the notification and all its repetitions. StandardWebhooks takes it from the
	// header Webhook-Id, and HMAC from the header Idempotency-Key.
	ID string

	// Sent is the time at which this repetition was signed. Zero if the signature has no time.
	Sent time.Time

	Header http.Header
	Body   []byte
}

// Verifier checks that a request comes from a sender that knows a secret. It is safe for concurrent
// use.
type Verifier interface {
	// Verify checks the signature of a request that was received at the time now. If the signature
	// is missing or wrong, the error is a *SignatureError.
	Verify(header http.Header, body []byte, now time.Time) (Message, error)
}

// SignatureError means that the signature of a request is missing or wrong. Its text is for logs.
// It contains no secret.
type SignatureError struct{ Reason string }

// Error returns the reason.
func (e *SignatureError) Error() string { return "inbox: " + e.Reason }

func invalid(format string, args ...any) error {
	return &SignatureError{Reason: fmt.Sprintf(format, args...)}
}

// DefaultTolerance is the default limit on the difference between the time of a signature and the
// receiver's clock.
const DefaultTolerance = 5 * time.Minute

const (
	maxSignatures = 32  // signatures per request
	maxID         = 256 // bytes
)

// StandardWebhooks verifies and creates signatures as standardwebhooks.com defines them: an
// HMAC-SHA256 of id, time and body. Create one with [NewStandardWebhooks].
type StandardWebhooks struct {
	keys      [][]byte
	tolerance time.Duration
}

// NewStandardWebhooks returns a verifier. Each secret is "whsec_" followed by base64, or only
// base64. A signature with any of the secrets is valid. A tolerance of zero means DefaultTolerance.
func NewStandardWebhooks(tolerance time.Duration, secrets ...string) (*StandardWebhooks, error) {
	if len(secrets) == 0 {
		return nil, errors.New("inbox: no secret")
	}
	if tolerance < 0 {
		return nil, fmt.Errorf("inbox: tolerance %v is negative", tolerance)
	}
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	v := &StandardWebhooks{tolerance: tolerance}
	for i, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 {
			return nil, fmt.Errorf("inbox: secret %d is not whsec_ and base64", i+1)
		}
		v.keys = append(v.keys, key)
	}
	return v, nil
}

// Verify implements [Verifier].
func (v *StandardWebhooks) Verify(header http.Header, body []byte, now time.Time) (Message, error) {
	id, stamp := header.Get(headerID), header.Get(headerTimestamp)
	switch {
	case id == "":
		return Message{}, invalid("the header Webhook-Id is missing")
	case len(id) > maxID:
		return Message{}, invalid("the header Webhook-Id has more than %d bytes", maxID)
	case header.Get(headerSignature) == "":
		return Message{}, invalid("the header Webhook-Signature is missing")
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return Message{}, invalid("the header Webhook-Timestamp is missing or not a Unix time")
	}
	sent := time.Unix(seconds, 0)
	if age := now.Sub(sent); age > v.tolerance || age < -v.tolerance {
		return Message{},
			invalid("the signature's time differs by %v from the clock, at most %v is allowed",
				age.Round(time.Second), v.tolerance)
	}
	signed := signedPart(id, stamp, body)
	given := strings.Fields(header.Get(headerSignature))
	for _, text := range given[:min(len(given), maxSignatures)] {
		encoded, is := strings.CutPrefix(text, "v1,")
		signature, err := base64.StdEncoding.DecodeString(encoded)
		if is && err == nil && matches(sha256.New, v.keys, signed, signature) {
			return Message{ID: id, Sent: sent, Header: header, Body: body}, nil
		}
	}
	return Message{}, invalid("no signature is valid for any of %d keys", len(v.keys))
}

// matches reports whether signature is a signature of data with one of the keys. It always tries
// all keys, and compares in constant time.
func matches(algorithm func() hash.Hash, keys [][]byte, data, signature []byte) bool {
	found := false
	for _, key := range keys {
		found = hmac.Equal(macOf(algorithm, key, data), signature) || found
	}
	return found
}

// Algorithm is the hash function of an HMAC.
type Algorithm string

// The algorithms.
const (
	SHA256 Algorithm = "sha256"
	SHA512 Algorithm = "sha512"
	SHA1   Algorithm = "sha1" // for senders that have nothing better
)

var algorithms = map[Algorithm]func() hash.Hash{SHA256: sha256.New, SHA512: sha512.New,
	SHA1: sha1.New}

// HMAC verifies and creates a header that holds an HMAC of the body. The signature does not cover
// the header Idempotency-Key or a time. So take the key from the body, with Options.Key. Otherwise
// an attacker with a copy of a notification can repeat it under another key.
type HMAC struct {
	// Header is the name of the header.
	Header string

	// Prefix stands before the signature, such as "sha256=". It may be empty.
	Prefix string

	// Algorithm is the hash function. "" means SHA256.
	Algorithm Algorithm

	// Base64 reports whether the signature is base64. False means hexadecimal digits.
	Base64 bool

	// Secrets are the keys, used byte for byte: they are not decoded from base64. A signature by
	// any of them is valid.
	Secrets []string
}

// Validate returns an error that names the invalid field.
func (v *HMAC) Validate() error {
	switch {
	case v.Header == "":
		return errors.New("inbox: HMAC.Header is empty")
	case len(v.Secrets) == 0:
		return errors.New("inbox: HMAC.Secrets is empty")
	case v.Algorithm != "" && algorithms[v.Algorithm] == nil:
		return fmt.Errorf("inbox: HMAC.Algorithm %q is not one of sha256, sha512, sha1",
			v.Algorithm)
	}
	for i, secret := range v.Secrets {
		if secret == "" {
			return fmt.Errorf("inbox: HMAC.Secrets[%d] is empty", i)
		}
	}
	return nil
}

// Verify implements [Verifier].
func (v *HMAC) Verify(header http.Header, body []byte, _ time.Time) (Message, error) {
	if err := v.Validate(); err != nil {
		return Message{}, err
	}
	text, is := strings.CutPrefix(header.Get(v.Header), v.Prefix)
	if !is || text == "" {
		return Message{},
			invalid("the header %s is missing, or does not begin with %q", v.Header, v.Prefix)
	}
	decode := hex.DecodeString
	if v.Base64 {
		decode = base64.StdEncoding.DecodeString
	}
	signature, err := decode(text)
	if err != nil {
		return Message{}, invalid("the header %s cannot be decoded", v.Header)
	}
	keys := make([][]byte, len(v.Secrets))
	for i, secret := range v.Secrets {
		keys[i] = []byte(secret)
	}
	if !matches(v.hash(), keys, body, signature) {
		return Message{}, invalid("the header %s is valid for none of %d keys", v.Header, len(keys))
	}
	return Message{ID: header.Get("Idempotency-Key"), Header: header, Body: body}, nil
}
