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

// permanentTexts has the beginnings of the texts of permanent errors without an exported type. Most
// of the crypto/tls errors are alerts: the server refuses the client's certificate, version or
// settings.
var permanentTexts = []string{
	"http: nil Request",
	"http: no Host in request URL",
	"http: Request.RequestURI can't be set",
	"http: Request.ContentLength=",
	"http: ContentLength=",
	"net/http: invalid header field",
	"net/http: invalid trailer field",
	"net/http: invalid method",
	"stopped after 10 redirects",
	"tls: access denied",
	"tls: bad certificate",
	"tls: certificate required",
	"tls: either ServerName or InsecureSkipVerify must be specified",
	"tls: expired certificate",
	"tls: handshake failure",
	"tls: insufficient security level",
	"tls: no application protocol",
	"tls: no supported versions satisfy",
	"tls: protocol version not supported",
	"tls: revoked certificate",
	"tls: server selected unsupported protocol version",
	"tls: unknown certificate", // also "unknown certificate authority"
	"tls: unrecognized name",
	"tls: unsupported certificate",
	"unsupported protocol scheme",
}

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
	return slices.ContainsFunc(permanentTexts, func(beginning string) bool {
		return strings.HasPrefix(text, beginning)
	})
}
