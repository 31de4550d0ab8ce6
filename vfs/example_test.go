package vfs_test

import (
	"fmt"
	"log"
	"os"

	"github.com/penstock-io/penstock/vfs"
)

// A state file is replaced as a whole: a crash leaves the old one or the new one.
func Example() {
	path, err := os.MkdirTemp("", "state")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(path)
	dir, err := vfs.OS().OpenDir(path)
	if err != nil {
		log.Fatal(err)
	}
	defer dir.Close()

	if err := save(dir, "position 1200\n"); err != nil {
		log.Fatal(err)
	}
	info, err := dir.Stat("state")
	fmt.Println(info.Size, err)
	// Output: 14 <nil>
}

func save(dir vfs.Dir, text string) error {
	file, err := dir.OpenFile("state.new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write([]byte(text)); err != nil {
		return err
	}
	if err := file.Sync(); err != nil { // the bytes
		return err
	}
	if err := dir.Rename("state.new", dir, "state"); err != nil {
		return err
	}
	return dir.Sync() // the name
}
