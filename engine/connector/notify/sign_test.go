package notify

import (
	"encoding/json"
	nethttp "net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStandardWebhooks compares signatures with those of the Go reference library of Standard
// Webhooks. The first one is the published test vector.
func TestStandardWebhooks(t *testing.T) {
	const first, second = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	for _, v := range []struct {
		secrets        []string
		id, body, want string
		at             int64
	}{
		{
			[]string{first}, "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`,
			"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", 1614265330},
		{[]string{first}, "order-1", "",
			"v1,Le6JjVEXCy4QziADxf59zF+0ZfASQ/zxeV2vCOLdsi8=", 1767322800},
		{[]string{second}, "f-1@17.2", "order=1\nä\x00",
			"v1,glKCzaLQBkVoOvoHNCdq933tkzAZkNt6EOwfMHjjmmE=", 1767322801},
	} {
		s := Sign{Webhooks: Webhooks{Secrets: v.secrets}}
		if err := s.validate(); err != nil {
			t.Fatal(err)
		}
		header := nethttp.Header{}
		if err := s.sign(header, v.id, "", []byte(v.body), time.Unix(v.at, 999)); err != nil {
			t.Fatal(err)
		}
		if got := header.Get("webhook-signature"); got != v.want ||
			header.Get("webhook-id") != v.id {
			t.Errorf("signature of %s is %s, want %s", v.id, got, v.want)
		}
	}
	both := Sign{Webhooks: Webhooks{Secrets: []string{first, second}}}
	header := nethttp.Header{}
	if err := both.sign(header, "order-1", "", nil, time.Unix(1767322800, 0)); err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(header.Get("webhook-signature"))
	if len(got) != 2 || got[0] != "v1,Le6JjVEXCy4QziADxf59zF+0ZfASQ/zxeV2vCOLdsi8=" ||
		got[1] == got[0] {
		t.Errorf("with two secrets the signatures are %q", got)
	}
}

// TestHMAC checks test case 2 of RFC 4231, and its key with other algorithms.
func TestHMAC(t *testing.T) {
	for algorithm, want := range map[string]string{
		"sha256": "sha=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
		"sha1":   "sha=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
	} {
		s := Sign{
			HMAC: HMAC{Header: "X-Signature", Prefix: "sha=", Secret: "Jefe", Algorithm: algorithm},
		}
		if err := s.validate(); err != nil {
			t.Fatal(err)
		}
		header := nethttp.Header{}
		if err := s.sign(
			header, "id", "", []byte("what do ya want for nothing?"), time.Now(),
		); err != nil {
			t.Fatal(err)
		}
		if got := header.Get("X-Signature"); got != want {
			t.Errorf("%s: %s, want %s", algorithm, got, want)
		}
	}
}

// TestKeysFile checks that keys are read for each attempt, so that a rotation needs no restart.
func TestKeysFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	write := func(keys map[string][]string, at time.Time) {
		t.Helper()
		text, err := json.Marshal(keys)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err == nil {
			err = os.Chtimes(path, at, at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	write(map[string][]string{"m1": {"c2VjcmV0"}}, now)
	s := Sign{Webhooks: Webhooks{On: true}, KeysFile: path, Key: "merchant"}
	if err := s.validate(); err != nil {
		t.Fatal(err)
	}
	sign := func(merchant string) (string, error) {
		header := nethttp.Header{}
		err := s.sign(header, "id", merchant, nil, now)
		return header.Get(headerWebhookSignature), err
	}
	before, err := sign("m1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sign("m2"); err == nil || s.check("m2") == nil {
		t.Error("a merchant without a key was signed for")
	}
	write(map[string][]string{"m1": {"bmV3", "c2VjcmV0"}}, now.Add(time.Second))
	after, err := sign("m1")
	if err != nil || !strings.HasSuffix(after, " "+before) || len(strings.Fields(after)) != 2 {
		t.Errorf(
			"after the rotation the signatures are %q, %v; before it was %q", after, err, before,
		)
	}
	if err := os.WriteFile(path, []byte("{broken secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if kept, err := sign("m1"); err != nil || kept != after {
		t.Errorf("a broken file replaced the keys: %v", err)
	}
	broken := Sign{Webhooks: Webhooks{On: true}, KeysFile: path, Key: "merchant"}
	if err := broken.validate(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a broken file: %v", err)
	}
}
