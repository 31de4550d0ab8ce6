package kafka

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/penstock-io/penstock/stream"
)

// The SASL mechanisms.
const (
	mechanismPlain  = "plain"
	mechanismSHA256 = "scram_sha_256"
	mechanismSHA512 = "scram_sha_512"
	mechanismOAuth  = "oauthbearer"
)

var mechanisms = []string{mechanismPlain, mechanismSHA256, mechanismSHA512, mechanismOAuth}

// SASL configures the login to brokers.
type SASL struct {
	Mechanism string `yaml:"mechanism" enum:"plain,scram_sha_256,scram_sha_512,oauthbearer" doc:"as the brokers offer it; empty: no login"`
	User      string `yaml:"user" doc:"user name for plain and scram"`
	Password  string `yaml:"password" secret:"true" doc:"password for plain and scram; write ${file:/path} to keep it out of the config"`
	Token     string `yaml:"token" secret:"true" doc:"token for oauthbearer"`
	TokenFile string `yaml:"token_file" path:"true" doc:"for oauthbearer: file that holds the token, read for each login"`
	Insecure  bool   `yaml:"insecure" doc:"allow plain without tls: anybody on the way can read the password"`
}

func (s *SASL) validate(encrypted bool) error {
	if s.Mechanism == "" {
		if *s != (SASL{}) {
			return stream.OptionErrorf("sasl.mechanism", "is missing, want one of %s",
				strings.Join(mechanisms, ", "))
		}
		return nil
	}
	if !slices.Contains(mechanisms, s.Mechanism) {
		return stream.OptionErrorf("sasl.mechanism", "is %q, want one of %s", s.Mechanism,
			strings.Join(mechanisms, ", "))
	}
	if s.Mechanism == mechanismOAuth {
		return s.validateToken()
	}
	switch {
	case s.User == "":
		return stream.OptionErrorf("sasl.user", "is missing: mechanism %s needs a user",
			s.Mechanism)
	case s.Password == "":
		return stream.OptionErrorf("sasl.password", "is missing: mechanism %s needs a password",
			s.Mechanism)
	case s.Token != "" || s.TokenFile != "":
		return stream.OptionErrorf("sasl.token", "belongs to mechanism oauthbearer, not %s",
			s.Mechanism)
	case s.Mechanism == mechanismPlain && !encrypted && !s.Insecure:
		return stream.OptionErrorf("sasl.mechanism", "plain sends the password in the clear; set "+
			"tls, or insecure: true")
	}
	return nil
}

func (s *SASL) validateToken() error {
	switch {
	case s.User != "" || s.Password != "":
		return stream.OptionErrorf("sasl.user", "belongs to plain and scram; mechanism "+
			"oauthbearer has token or token_file")
	case s.Token == "" && s.TokenFile == "":
		return stream.OptionErrorf("sasl.token", "is missing: mechanism oauthbearer needs token "+
			"or token_file")
	case s.Token != "" && s.TokenFile != "":
		return stream.OptionErrorf("sasl.token_file", "conflicts with token; set one of them")
	}
	return nil
}

// mechanism returns the configured mechanism, or nil without a login.
func (s *SASL) mechanism() sasl.Mechanism {
	switch s.Mechanism {
	case mechanismPlain:
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism()
	case mechanismSHA256:
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism()
	case mechanismSHA512:
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism()
	case mechanismOAuth:
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := s.readToken()
			return oauth.Auth{Token: token}, err
		})
	}
	return nil
}

// maxToken bounds the size of a token file.
const maxToken = 64 << 10

func (s *SASL) readToken() (string, error) {
	if s.TokenFile == "" {
		return s.Token, nil
	}
	text, err := os.ReadFile(s.TokenFile)
	if err != nil {
		return "", fmt.Errorf("sasl.token_file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(token) > maxToken {
		return "", fmt.Errorf("sasl.token_file: %s: want one token of at most 64 KiB", s.TokenFile)
	}
	return token, nil
}
