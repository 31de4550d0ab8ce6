//penstock:pure

package compat

import "strings"

// JavaError is an exception as Hadoop's policies see it. Classes are given by their simple names.
type JavaError struct {
	Class  string     // ConnectException, IOException, RemoteException, ...
	Remote string     // the class on the server, for a RemoteException
	Cause  *JavaError // nil if there is none
}

// ParseJavaError reads "IOException", "IOException caused by SaslException" (any depth) and "remote
// StandbyException".
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

// javaSubclasses maps a superclass to its subclasses, separated by spaces. It has the public
// exceptions of the JDK and of hadoop-common 3.4 that the policies may have to handle.
var javaSubclasses = map[string]string{
	"AccessControlException":     "AuthorizationException",
	"AsynchronousCloseException": "ClosedByInterruptException",
	"CharacterCodingException":   "MalformedInputException UnmappableCharacterException",
	"ClosedChannelException":     "AsynchronousCloseException",
	"FileSystemException": `
		AccessDeniedException AtomicMoveNotSupportedException DirectoryNotEmptyException FileSystemLoopException
		NoSuchFileException NotDirectoryException NotLinkException`,
	"HttpTimeoutException": "HttpConnectTimeoutException",
	"IOException": `
		AccessControlException AlreadyClosedException AlreadyExistsException AsyncCallLimitExceededException
		BadFencingConfigurationException CharConversionException CharacterCodingException ChecksumException
		ClosedChannelException ClusterStorageCapacityExceededException
		DirectoryListingStartAfterNotFoundException DiskErrorException DiskOutOfSpaceException EOFException
		ExitCodeException FileAlreadyExistsException FileLockInterruptionException FileNotFoundException
		FileSystemException HealthCheckFailedException HttpRetryException HttpTimeoutException
		InterruptedByTimeoutException InvalidChecksumSizeException InvalidDecodingException
		InvalidPathHandleException InvalidPropertiesFormatException InvalidRequestException InvalidToken
		IpcException JMXProviderException JMXServerErrorException KerberosAuthException MalformedURLException
		MetaBlockAlreadyExists MetaBlockDoesNotExist MultiException ObjectStreamException
		ParentNotDirectoryException ProtocolException RemoteException RetriableException RpcException
		SSLException SafeModeException SaslException ServiceFailedException SocketException StandbyException
		SyncFailedException UTFDataFormatException UnknownHostException UnknownServiceException
		UnresolvedLinkException UnsupportedEncodingException UnsupportedFileSystemException
		UnsupportedMultipartUploaderException UserPrincipalNotFoundException VersionMismatchException
		WebSocketHandshakeException ZeroCopyUnavailableException ZipException`,
	"InterruptedIOException": "SocketTimeoutException",
	"ObjectStreamException": `
		InvalidClassException InvalidObjectException NotActiveException NotSerializableException
		OptionalDataException StreamCorruptedException WriteAbortedException`,
	"PathExistsException": `
		PathIsDirectoryException PathIsNotDirectoryException PathIsNotEmptyDirectoryException
		PathOperationException`,
	"PathIOException": `
		ClosedIOException PathAccessDeniedException PathExistsException PathNotFoundException`,
	"RpcException":       "RpcClientException RpcServerException UnexpectedServerException",
	"RpcServerException": "RpcNoSuchMethodException RpcNoSuchProtocolException VersionMismatch",
	"SSLException": "SSLHandshakeException SSLKeyException SSLPeerUnverifiedException " +
		"SSLProtocolException",
	"SaslException": "AuthenticationException",
	"SocketException": "BindException ConnectException NoRouteToHostException " +
		"PortUnreachableException",
	"SocketTimeoutException": "ConnectTimeoutException",
	"StandbyException":       "ObserverRetryOnActiveException",
	"ZipException":           "JarException",
}

// javaParents is the superclass of each class in javaSubclasses. A class that is not listed is an
// IOException only if its name ends in IOException.
var javaParents = func() map[string]string {
	parents := map[string]string{}
	for parent, classes := range javaSubclasses {
		for class := range strings.FieldsSeq(classes) {
			parents[class] = parent
		}
	}
	return parents
}()

// isA reports whether e is of the given class or of a subclass, like Java's instanceof.
func (e JavaError) isA(class string) bool {
	for name := e.Class; name != ""; name = javaParents[name] {
		if name == class || class == "IOException" && strings.HasSuffix(name, "IOException") &&
			name != "UncheckedIOException" {
			return true
		}
	}
	return false
}

// anyIsA reports whether e or one of its causes is of the given class or of a subclass.
func (e JavaError) anyIsA(class string) bool {
	return e.isA(class) || e.Cause != nil && e.Cause.anyIsA(class)
}
