package fileid_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/fileid"
)

// TestInSynctest checks that identities do not depend on the clock, so they hold in the virtual
// time of testing/synctest.
func TestInSynctest(t *testing.T) {
	file := fileid.File{Dev: 1, Ino: 2, ModTime: 3, Size: 5, Head: []byte("first")}
	outside := fileid.New(file, nil)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour)
		if id := fileid.New(file, nil); id != outside {
			t.Errorf("the identity is %v in a bubble, %v outside", id, outside)
		}
		if !outside.Match(file) {
			t.Error("the file does not match its identity")
		}
	})
}
