package inbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// Sign sets the headers of Standard Webhooks for a notification that is sent now. It is for
// senders. It makes one signature with each key, so the receiver needs only one of them. Sign each
// repetition when it is sent, because receivers refuse old signatures.
func (v *StandardWebhooks) Sign(header http.Header, id string, body []byte, now time.Time) {
	stamp := strconv.FormatInt(now.Unix(), 10)
	signatures := make([]string, len(v.keys))
	for i, key := range v.keys {
		mac := macOf(sha256.New, key, signedPart(id, stamp, body))
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac)
	}
	header.Set(headerID, id)
	header.Set(headerTimestamp, stamp)
	header.Set(headerSignature, strings.Join(signatures, " "))
}

// signedPart returns the part of a notification that Standard Webhooks signatures cover.
func signedPart(id, stamp string, body []byte) []byte {
	return append([]byte(id+"."+stamp+"."), body...)
}

// Sign sets the header for a notification, signed with the first of the Secrets. The error is the
// error of [HMAC.Validate].
func (v *HMAC) Sign(header http.Header, body []byte) error {
	if err := v.Validate(); err != nil {
		return err
	}
	mac := macOf(v.hash(), []byte(v.Secrets[0]), body)
	text := hex.EncodeToString(mac)
	if v.Base64 {
		text = base64.StdEncoding.EncodeToString(mac)
	}
	header.Set(v.Header, v.Prefix+text)
	return nil
}

// hash returns the hash function of v. v must be valid.
func (v *HMAC) hash() func() hash.Hash {
	if v.Algorithm == "" {
		return algorithms[SHA256]
	}
	return algorithms[v.Algorithm]
}

func macOf(algorithm func() hash.Hash, key, data []byte) []byte {
	mac := hmac.New(algorithm, key)
	mac.Write(data)
	return mac.Sum(nil)
}
