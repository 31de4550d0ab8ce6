package inbox_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/inbox"
)

// vector is a signature made by the reference library.
type vector struct {
	Name, Secret, ID, Body, Signature string
	Timestamp                         int64
}

func vectors(t *testing.T) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/standard-webhooks.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []vector }
	if err := json.Unmarshal(text, &file); err != nil || len(file.Cases) < 5 {
		t.Fatalf("%d cases, %v", len(file.Cases), err)
	}
	return file.Cases
}

func (v vector) header(signature string) http.Header {
	h := make(http.Header)
	stamp, _ := json.Marshal(v.Timestamp)
	h.Set("webhook-id", v.ID)
	h.Set("webhook-timestamp", string(stamp))
	h.Set("webhook-signature", signature)
	return h
}

const otherSecret = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// TestVectors checks that signatures of the reference library are valid, and all others are not.
func TestVectors(t *testing.T) {
	for _, v := range vectors(t) {
		now := time.Unix(v.Timestamp, 0)
		verifier, err := inbox.NewStandardWebhooks(0, otherSecret, v.Secret)
		if err != nil {
			t.Fatal(err)
		}
		m, err := verifier.Verify(v.header("v1a,xxx v1,AAAA "+v.Signature), []byte(v.Body),
			now.Add(4*time.Minute))
		if err != nil || m.ID != v.ID || !m.Sent.Equal(now) || string(m.Body) != v.Body {
			t.Errorf("%s: %+v, %v", v.Name, m, err)
		}
		made := make(http.Header)
		verifier.Sign(made, v.ID, []byte(v.Body), now)
		if got := made.Get("webhook-signature"); !strings.HasSuffix(got, " "+v.Signature) {
			t.Errorf("%s: signed as %q, want %q by the second key", v.Name, got, v.Signature)
		}
		other, _ := inbox.NewStandardWebhooks(0, otherSecret)
		odd := v.header(v.Signature)
		odd.Set("Webhook-Timestamp", "1e9")
		check := func(h http.Header, body string, after time.Duration) error {
			_, err := verifier.Verify(h, []byte(body), now.Add(after))
			return err
		}
		changed := v
		changed.ID += "x"
		for what, err := range map[string]error{
			"another key":     second(other.Verify(v.header(v.Signature), []byte(v.Body), now)),
			"another body":    check(v.header(v.Signature), v.Body+" ", 0),
			"another id":      check(changed.header(v.Signature), v.Body, 0),
			"another version": check(v.header("v2"+v.Signature[2:]), v.Body, 0),
			"too old":         check(v.header(v.Signature), v.Body, 5*time.Minute+time.Second),
			"from the future": check(v.header(v.Signature), v.Body, -5*time.Minute-time.Second),
			"no signature":    check(v.header(""), v.Body, 0),
			"empty signature": check(v.header("v1,"), v.Body, 0),
			"cut signature":   check(v.header(v.Signature[:20]), v.Body, 0),
			"too many before": check(v.header(strings.Repeat("v1,AAAA ", 40)+v.Signature), v.Body,
				0),
			"no header at all":  check(http.Header{}, v.Body, 0),
			"no number as time": check(odd, v.Body, 0),
		} {
			if _, is := err.(*inbox.SignatureError); !is {
				t.Errorf("%s: %s is accepted: %v", v.Name, what, err)
			} else if strings.Contains(err.Error(), v.Secret) {
				t.Errorf("%s: the error holds the secret", what)
			}
		}
	}
}

func second(_ inbox.Message, err error) error { return err }

func TestBadSecrets(t *testing.T) {
	for _, secrets := range [][]string{nil, {""}, {"whsec_"}, {"whsec_***"}} {
		if _, err := inbox.NewStandardWebhooks(0, secrets...); err == nil {
			t.Errorf("secrets %q are accepted", secrets)
		}
	}
	if _, err := inbox.NewStandardWebhooks(-1, otherSecret); err == nil {
		t.Error("a negative tolerance is accepted")
	}
	for _, v := range []inbox.HMAC{
		{}, {Header: "X"}, {Header: "X", Secrets: []string{""}},
		{Header: "X", Secrets: []string{"a"}, Algorithm: "md5"},
	} {
		if v.Validate() == nil {
			t.Errorf("%+v is accepted", v)
		}
		if _, err := v.Verify(http.Header{"X": {"00"}}, nil, time.Now()); err == nil {
			t.Errorf("%+v verifies", v)
		}
	}
}

// TestHMAC checks test case 2 of RFC 4231, and the form that GitHub uses.
func TestHMAC(t *testing.T) {
	const body, digits = "what do ya want for nothing?",
		"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
	raw, _ := hex.DecodeString(digits)
	plain := inbox.HMAC{Header: "X-Signature", Secrets: []string{"old", "Jefe"}}
	github := inbox.HMAC{Header: "X-Hub-Signature-256", Prefix: "sha256=",
		Secrets: []string{"Jefe"}}
	encoded := inbox.HMAC{Header: "X-Signature", Secrets: []string{"Jefe"}, Base64: true}
	for _, c := range []struct {
		v     inbox.HMAC
		value string
		valid bool
	}{
		{plain, digits, true}, {plain, strings.ToUpper(digits), true}, {plain, digits[:62], false},
		{plain, "x", false}, {plain, "", false},
		{github, "sha256=" + digits, true}, {github, digits, false}, {github, "sha256=", false},
		{github, "sha1=" + digits, false},
		{encoded, base64.StdEncoding.EncodeToString(raw), true}, {encoded, digits, false},
	} {
		h := make(http.Header)
		h.Set(c.v.Header, c.value)
		h.Set("Idempotency-Key", "k")
		m, err := c.v.Verify(h, []byte(body), time.Time{})
		if (err == nil) != c.valid || c.valid && m.ID != "k" {
			t.Errorf("%+v, %q: %+v, %v", c.v, c.value, m, err)
		}
		if _, err := c.v.Verify(h, []byte(body+"!"), time.Time{}); err == nil {
			t.Errorf("%+v: another body is accepted", c.v)
		}
	}
}

// TestHMACSign checks that a verifier accepts its own signatures, and that it signs with its first
// secret.
func TestHMACSign(t *testing.T) {
	for _, v := range []inbox.HMAC{
		{Header: "X-Signature", Secrets: []string{"Jefe", "old"}},
		{Header: "X-Signature", Prefix: "v=", Secrets: []string{"Jefe"}, Algorithm: inbox.SHA1},
		{Header: "X-Signature", Secrets: []string{"Jefe"}, Algorithm: inbox.SHA512, Base64: true},
	} {
		h := make(http.Header)
		if err := v.Sign(h, []byte("body")); err != nil {
			t.Fatal(err)
		}
		first := v
		first.Secrets = v.Secrets[:1]
		if _, err := first.Verify(h, []byte("body"), time.Time{}); err != nil {
			t.Errorf("%+v: %v", v, err)
		}
	}
	if err := (&inbox.HMAC{Header: "X"}).Sign(make(http.Header), nil); err == nil {
		t.Error("signed without a secret")
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("msg", "1767225600", "v1,AAAA", []byte("{}"))
	f.Add("", "-9223372036854775808", "v1,,,, v1", []byte(nil))
	v, err := inbox.NewStandardWebhooks(0, otherSecret)
	if err != nil {
		f.Fatal(err)
	}
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(otherSecret, "whsec_"))
	f.Fuzz(func(t *testing.T, id, stamp, signature string, body []byte) {
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {stamp},
			"Webhook-Signature": {signature}}
		if _, err := v.Verify(h, body, time.Unix(1767225600, 0)); err != nil {
			return
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + stamp + "."))
		mac.Write(body)
		if want := base64.StdEncoding.EncodeToString(mac.Sum(nil)); !strings.Contains(signature,
			want) {
			t.Errorf("%q is accepted for %q", signature, want)
		}
	})
}
