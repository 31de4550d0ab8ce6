package supervise_test

import (
	"errors"
	"testing"

	"github.com/penstock-io/penstock/supervise"
)

func TestFinal(t *testing.T) {
	cause := errors.New("the input cannot be read again")
	if err := supervise.Final(nil); err != nil {
		t.Errorf("Final(nil) = %v", err)
	}
	err := supervise.Final(cause)
	if err.Error() != cause.Error() {
		t.Errorf("Final(%q) = %q; want the same text", cause, err)
	}
	if !errors.Is(err, cause) || !errors.Is(err, supervise.ErrStop) {
		t.Errorf("Final(%q) does not wrap both its cause and ErrStop", cause)
	}
}
