// Package natsaccess connects to NATS servers, given the options in a config. It is for components
// that use NATS for an auxiliary purpose: a buffer in a stream, or a registry of workers. The
// connector nats uses only its login.
package natsaccess

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/httpaccess"
	"github.com/penstock-io/penstock/stream"
)

// Options has the servers and credentials. The options of components contain it.
type Options struct {
	URL         string         `yaml:"url" doc:"nats://HOST:PORT of a server, or tls://; several with commas"`
	Credentials string         `yaml:"credentials" path:"true" doc:"file with JWT and key (.creds)"`
	User        string         `yaml:"user" doc:"name of a user"`
	Password    string         `yaml:"password" secret:"true" doc:"password of the user"`
	Token       string         `yaml:"token" secret:"true" doc:"token, in place of a user"`
	TLS         httpaccess.TLS `yaml:"tls" doc:"certificates; tls:// alone trusts the system's authorities"`
}

// Check returns a *stream.OptionError for the first invalid option. The argument is the config key
// that contains the options.
func (o *Options) Check(key string) error {
	if o.URL == "" {
		return stream.OptionErrorf(key+".url", "is missing; write the URL of a server, with the "+
			"scheme nats or tls")
	}
	for text := range strings.SplitSeq(o.URL, ",") {
		if err := checkServer(strings.TrimSpace(text)); err != nil {
			return stream.OptionErrorf(key+".url", "%w", err)
		}
	}
	ways := 0
	for _, set := range []string{o.Credentials, o.User, o.Token} {
		if set != "" {
			ways++
		}
	}
	switch {
	case ways > 1:
		return stream.OptionErrorf(key, "has several of credentials, user and token; remove all "+
			"but one")
	case o.Password != "" && o.User == "":
		return stream.OptionErrorf(key+".user", "is missing: add the user of password")
	}
	if err := o.TLS.Check(); err != nil {
		return stream.OptionErrorf(key+".tls", "%w", err)
	}
	return nil
}

// checkServer checks the URL of a server.
func checkServer(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return errors.New("has an entry that is not a URL such as nats://nats-1:4222")
	case u.User != nil:
		return errors.New("has a user or password in it; use the options user and password, or " +
			"token")
	case u.Scheme != "nats" && u.Scheme != "tls":
		return fmt.Errorf("has the scheme %s, want nats or tls", u.Scheme)
	}
	return nil
}
