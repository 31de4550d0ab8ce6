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

// permanentTexts are the beginnings of errors of net/http that have no type of their own.
var permanentTexts = []string{
	"unsupported protocol scheme",
	"net/http: invalid header field",
	"net/http: invalid trailer field",
	"net/http: invalid method",
	"http: nil Request",
	"http: no Host in request URL",
	"http: Request.RequestURI can't be set",
	"stopped after 10 redirects",
}

// permanentNetworkError reports whether err is a failure of a request that trying again cannot
// mend. Of an inner retry only the last failure counts.
func permanentNetworkError(err error) bool {
	for err != nil {
		switch e := err.(type) {
		case *Error:
			err = e.Last
			continue
		case *tls.CertificateVerificationError, x509.UnknownAuthorityError, x509.HostnameError,
			x509.CertificateInvalidError, tls.RecordHeaderError, url.EscapeError, url.InvalidHostError,
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
			return err == http.ErrSchemeMismatch || err == error(http.ErrNotSupported) || hasPermanentText(err.Error())
		}
	}
	return false
}

// hasPermanentText reports whether text is that of a permanent error of net/http without a type of
// its own.
func hasPermanentText(text string) bool {
	return slices.ContainsFunc(permanentTexts, func(beginning string) bool {
		return strings.HasPrefix(text, beginning)
	})
}
