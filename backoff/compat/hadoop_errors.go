//penstock:pure

package compat

import (
	"strings"
)

// JavaError is an exception as Hadoop's policies see it: classes by their simple names.
type JavaError struct {
	Class  string     // ConnectException, IOException, RemoteException, ...
	Remote string     // of a RemoteException: the class that it was on the server
	Cause  *JavaError // nil: none
}

// ParseJavaError reads "IOException", "IOException caused by SaslException" (any depth) and "remote StandbyException".
func ParseJavaError(text string) JavaError {
	first, rest, caused := strings.Cut(text, " caused by ")
	e := JavaError{Class: first}
	if class, ok := strings.CutPrefix(first, "remote "); ok {
		e = JavaError{Class: "RemoteException", Remote: class}
	}
	if caused {
		cause := ParseJavaError(rest)
		e.Cause = &cause
	}
	return e
}

// javaParents is the superclass of each class that the policies or their callers name. A class that is not here is no
// IOException, unless its name ends so.
var javaParents = map[string]string{
	"AccessControlException":       "IOException",
	"BindException":                "SocketException",
	"CharacterCodingException":     "IOException",
	"ClosedByInterruptException":   "AsynchronousCloseException",
	"AsynchronousCloseException":   "ClosedChannelException",
	"ClosedChannelException":       "IOException",
	"ConnectException":             "SocketException",
	"ConnectTimeoutException":      "SocketTimeoutException",
	"EOFException":                 "IOException",
	"FileAlreadyExistsException":   "IOException",
	"FileNotFoundException":        "IOException",
	"InterruptedIOException":       "IOException",
	"InvalidToken":                 "IOException",
	"MalformedURLException":        "IOException",
	"NoRouteToHostException":       "SocketException",
	"NoSuchFileException":          "FileSystemException",
	"FileSystemException":          "IOException",
	"PortUnreachableException":     "SocketException",
	"ProtocolException":            "IOException",
	"RemoteException":              "IOException",
	"RetriableException":           "IOException",
	"SSLException":                 "IOException",
	"SSLHandshakeException":        "SSLException",
	"SafeModeException":            "IOException",
	"SaslException":                "IOException",
	"SocketException":              "IOException",
	"SocketTimeoutException":       "InterruptedIOException",
	"StandbyException":             "IOException",
	"UnknownHostException":         "IOException",
	"UnsupportedEncodingException": "IOException",
}

// isA is Java's instanceof.
func (e JavaError) isA(class string) bool {
	for name := e.Class; name != ""; name = javaParents[name] {
		if name == class || class == "IOException" && strings.HasSuffix(name, "IOException") {
			return true
		}
	}
	return false
}

// anyIsA asks e and every cause.
func (e JavaError) anyIsA(class string) bool {
	for c := &e; c != nil; c = c.Cause {
		if c.isA(class) {
			return true
		}
	}
	return false
}
