package httpaccess

import (
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// CheckAuthorization returns an error if basic or bearer is invalid, or if the options basic,
// bearer, bearer_file and headers contradict each other.
func CheckAuthorization(basic *Basic, bearer, bearerFile string, headers map[string]string) error {
	given := 0
	for _, is := range []bool{basic != nil, bearer != "", bearerFile != ""} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return stream.OptionErrorf("bearer", "basic, bearer and bearer_file exclude each other; "+
			"remove all but one")
	case basic != nil && basic.User == "":
		return stream.OptionErrorf("basic.user", "is missing")
	case basic != nil && strings.Contains(basic.User, ":"):
		return stream.OptionErrorf("basic.user", "has a colon, which is not possible in basic auth")
	}
	if name, ok := Authorization(headers); ok && given > 0 {
		return stream.OptionErrorf("headers."+name, "basic, bearer or bearer_file already sets "+
			"this header; remove one of them")
	}
	if err := CheckToken(bearer); err != nil {
		return &stream.OptionError{Key: "bearer", Err: err}
	}
	return nil
}

// Authorization returns the name of the header Authorization as it is spelled in headers.
func Authorization(headers map[string]string) (name string, ok bool) {
	for name := range headers {
		if strings.EqualFold(name, "Authorization") {
			return name, true
		}
	}
	return "", false
}
