package inbox

import (
	"errors"
	"io"
	"net/http"
)

// ServeHTTP implements http.Handler. It answers with these statuses:
//
//	200    Options.Change was applied, now or before; the body is Options.Success
//	401    the signature is missing or wrong
//	405    the method is not POST or PUT
//	413    the body is larger than Options.MaxBody
//	422    the notification is rejected, or its key was used with another body
//	500    any other error, for example of Options.Change; the sender should repeat
//
// With any other status than 200, the body is only the text of the status. OnError gets the error,
// except with 405.
func (i *Inbox[T]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		w.Header().Set("Allow", "POST, PUT")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, i.o.MaxBody))
	if err != nil {
		i.refuse(w, r, err)
		return
	}
	if _, err := i.Receive(r.Context(), r.Header, body); err != nil {
		i.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, i.o.Success) // a sender that fails to read it repeats the notification
}

func (i *Inbox[T]) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if i.o.OnError != nil {
		i.o.OnError(r, err)
	}
	status := http.StatusInternalServerError
	_, unsigned := errors.AsType[*SignatureError](err)
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case unsigned:
		status = http.StatusUnauthorized
	case large:
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, ErrRejected), errors.Is(err, ErrKeyReused):
		status = http.StatusUnprocessableEntity
	}
	http.Error(w, http.StatusText(status), status)
}
