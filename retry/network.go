package retry

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Errors of net/http and crypto/tls without an exported type are recognized by the beginnings of
// their texts. Most of the crypto/tls errors are alerts: the server refuses the client's
// certificate, version or settings.
var (
	permanentHTTP = []string{
		"nil Request",
		"no Host in request URL",
		"Request.RequestURI can't be set",
		"Request.ContentLength=",
		"ContentLength=",
	}
	permanentNetHTTP = []string{"invalid header field", "invalid trailer field", "invalid method"}
	permanentTLS     = []string{
		"access denied",
		"bad certificate",
		"certificate required",
		"either ServerName or InsecureSkipVerify must be specified",
		"expired certificate",
		"handshake failure",
		"insufficient security level",
		"no application protocol",
		"no supported versions satisfy",
		"protocol version not supported",
		"revoked certificate",
		"server selected unsupported protocol version",
		"unknown certificate", // also "unknown certificate authority"
		"unrecognized name",
		"unsupported certificate",
	}
)

// permanentNetworkError reports whether err is a failure of a request that another attempt cannot
// fix. If err contains the failures of an inner retry, only the last one counts.
func permanentNetworkError(err error) bool {
	for err != nil {
		switch e := err.(type) {
		case *Error:
			err = e.Last
			continue
		case *tls.CertificateVerificationError, x509.UnknownAuthorityError, x509.HostnameError,
			x509.CertificateInvalidError, tls.RecordHeaderError, url.EscapeError,
			url.InvalidHostError,
			*net.AddrError, *net.ParseError, net.UnknownNetworkError:
			return true
		case *net.DNSError:
			if e.IsNotFound && !e.IsTemporary {
				return true
			}
		case *url.Error:
			if e.Op == "parse" {
				return true
			}
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			return slices.ContainsFunc(e.Unwrap(), permanentNetworkError)
		default:
			return err == http.ErrSchemeMismatch || err == error(http.ErrNotSupported) ||
				hasPermanentText(err.Error())
		}
	}
	return false
}

// hasPermanentText reports whether text is the text of a permanent error without an exported type.
func hasPermanentText(text string) bool {
	if rest, ok := strings.CutPrefix(text, "net/http: "); ok {
		return beginsWithAny(rest, permanentNetHTTP)
	}
	if rest, ok := strings.CutPrefix(text, "http: "); ok {
		return beginsWithAny(rest, permanentHTTP)
	}
	if rest, ok := strings.CutPrefix(text, "tls: "); ok {
		return beginsWithAny(rest, permanentTLS)
	}
	return strings.HasPrefix(text, "unsupported protocol scheme") ||
		strings.HasPrefix(text, "stopped after 10 redirects")
}

func beginsWithAny(text string, beginnings []string) bool {
	return slices.ContainsFunc(beginnings, func(beginning string) bool {
		return strings.HasPrefix(text, beginning)
	})
}
