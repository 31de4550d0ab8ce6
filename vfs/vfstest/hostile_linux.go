package vfstest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/vfs"
)

// TestLinux checks that a file system on Linux handles devices, permissions, other processes, and
// names that are replaced while they are opened. Each subtest runs in a temporary directory of its
// own. To get another process, one subtest starts the test binary again, with only that subtest.
func TestLinux(t *testing.T, system vfs.FS) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, system vfs.FS)
	}{
		{"special files", testSpecialFiles}, {"unreadable", testUnreadable},
		{"vanishing entries", testVanishingEntries},
		{"replaced names", testReplacedNames},
		{"lock of another process", testLockOfAnotherProcess}, {"inode", testInode},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, system) })
	}
}

func openTemp(t *testing.T, system vfs.FS) (vfs.Dir, string) {
	t.Helper()
	root := t.TempDir()
	d, err := system.OpenDir(root)
	if err != nil {
		t.Fatalf("OpenDir: %v", err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, root
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func testSpecialFiles(t *testing.T, system vfs.FS) {
	d, root := openTemp(t, system)
	l, err := net.Listen("unix", filepath.Join(root, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := map[string]string{"socket": "socket"}
	if err := syscall.Mknod(filepath.Join(root, "null"), syscall.S_IFCHR|0o600,
		1<<8|3); err == nil {
		want["null"] = "device"
	} else {
		t.Logf("no device is tried: %v", err)
	}
	for name, kind := range want {
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR | os.O_CREATE} {
			_, err := d.OpenFile(name, flag, 0o600)
			if !errors.Is(err, vfs.ErrNotRegular) || !strings.Contains(err.Error(), kind) {
				t.Errorf("OpenFile(%q) = %v; want ErrNotRegular that says %s", name, err, kind)
			}
		}
	}
}

// testUnreadable checks Open and Stat of an unreadable file. Since root may read every file, a test
// that runs as root makes these calls on a thread that accesses files as the user nobody.
func testUnreadable(t *testing.T, system vfs.FS) {
	d, root := openTemp(t, system)
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, "f"), "secret")
	if err := os.Chmod(filepath.Join(root, "f"), 0); err != nil {
		t.Fatal(err)
	}
	var openErr, statErr error
	var info vfs.Info
	done := make(chan struct{})
	go func() {
		defer close(done)
		if os.Geteuid() == 0 {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			const nobody = 65534
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0); errno != 0 {
				openErr = errno
				return
			}
		}
		_, openErr = d.Open("f")
		info, statErr = d.Stat("f")
	}()
	<-done
	if !errors.Is(openErr, fs.ErrPermission) || !strings.Contains(openErr.Error(), "f") {
		t.Errorf("Open of an unreadable file = %v; want fs.ErrPermission that names it", openErr)
	}
	if statErr != nil || info.Size != 6 {
		t.Errorf("Stat of an unreadable file = %+v, %v; want it", info, statErr)
	}
}

// testVanishingEntries lists a directory while files in it are created and removed.
func testVanishingEntries(t *testing.T, system vfs.FS) {
	d, root := openTemp(t, system)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := filepath.Join(root, fmt.Sprint("f", i%50))
			_ = os.WriteFile(name, nil, 0o600)
			_ = os.Remove(filepath.Join(root, fmt.Sprint("f", (i+25)%50)))
		}
	}()
	defer func() { close(stop); <-done }()
	for range 500 {
		list, err := d.Entries(".")
		if err != nil {
			t.Fatalf("Entries while files vanish: %v", err)
		}
		for _, e := range list {
			if e.Type != 0 || !strings.HasPrefix(e.Name, "f") {
				t.Fatalf("Entries = %+v; want regular files f*", e)
			}
		}
	}
}

// testReplacedNames opens a file while its name is constantly replaced by symlinks and FIFOs, and
// its directory by a symlink. If the open succeeds, it must have opened the regular file.
func testReplacedNames(t *testing.T, system vfs.FS) {
	d, root := openTemp(t, system)
	outside := t.TempDir()
	writeFile(t, filepath.Join(outside, "f"), "outside")
	for _, dir := range []string{"sub", "real"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(root, "sub", "f"), "inside")
	writeFile(t, filepath.Join(root, "inner"), "reached by a symlink")
	var steps []func() error
	put := func(make func(path string) error) {
		steps = append(steps, func() error {
			if err := make(filepath.Join(root, "new")); err != nil {
				return err
			}
			return os.Rename(filepath.Join(root, "new"), filepath.Join(root, "sub", "f"))
		})
	}
	put(func(p string) error { return os.Symlink(filepath.Join(outside, "f"), p) })
	put(func(p string) error { return syscall.Mkfifo(p, 0o600) })
	put(func(p string) error { return os.WriteFile(p, []byte("inside"), 0o600) })
	put(func(p string) error { return os.Symlink("../inner", p) })
	put(func(p string) error { return os.WriteFile(p, []byte("inside"), 0o600) })
	steps = append(steps,
		func() error { return os.Rename(filepath.Join(root, "sub"), filepath.Join(root, "away")) },
		func() error { return os.Symlink("real", filepath.Join(root, "sub")) },
		func() error { return os.Remove(filepath.Join(root, "sub")) },
		func() error { return os.Rename(filepath.Join(root, "away"), filepath.Join(root, "sub")) })
	writeFile(t, filepath.Join(root, "real", "f"), "reached by a symlink")
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := steps[i%len(steps)](); err != nil {
				done <- err
				return
			}
		}
	}()
	opened := 0
	for range 3000 {
		f, err := d.Open("sub/f")
		if err != nil {
			continue
		}
		text, err := io.ReadAll(f)
		if string(text) != "inside" || err != nil {
			t.Fatalf("opened a file that holds %q, %v; want inside", text, err)
		}
		opened++
		_ = f.Close()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if opened == 0 {
		t.Error("nothing was opened in 3000 attempts")
	}
}

// lockRoot is the environment variable with the directory that the child process of
// testLockOfAnotherProcess locks.
const lockRoot = "VFSTEST_LOCK_ROOT"

// holdLock takes the lock, prints the error, and keeps the lock until its input ends.
func holdLock(system vfs.FS, root string) {
	d, err := system.OpenDir(root)
	if err == nil {
		_, err = d.Lock(".lock", fmt.Sprintf("pid %d", os.Getpid()))
	}
	fmt.Println(err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// testLockOfAnotherProcess starts its own test binary again, for this test only.
func testLockOfAnotherProcess(t *testing.T, system vfs.FS) {
	if root := os.Getenv(lockRoot); root != "" {
		holdLock(system, root)
	}
	d, root := openTemp(t, system)
	child := exec.Command(os.Args[0], "-test.run", "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	child.Env = append(os.Environ(), lockRoot+"="+root)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	if said != "<nil>\n" || err != nil {
		t.Fatalf("the other process said %q, %v; want <nil>", said, err)
	}
	_, err = d.Lock(".lock", "us")
	holder := fmt.Sprintf("pid %d", child.Process.Pid)
	if !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), holder) ||
		!strings.Contains(err.Error(), root) {
		t.Fatalf("Lock while another process holds it = %v; want ErrLocked with %q and the path",
			err, holder)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed
	l, err := d.Lock(".lock", "us")
	if err != nil {
		t.Fatalf("Lock after the holder was killed: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func testInode(t *testing.T, system vfs.FS) {
	d, root := openTemp(t, system)
	writeFile(t, filepath.Join(root, "f"), "x")
	want, err := os.Lstat(filepath.Join(root, "f"))
	if err != nil {
		t.Fatal(err)
	}
	st := want.Sys().(*syscall.Stat_t)
	got, err := d.Stat("f")
	if err != nil || got.Ino != st.Ino || got.Dev != st.Dev || got.Links != uint64(st.Nlink) ||
		!got.ModTime.Equal(want.ModTime()) {
		t.Errorf("Stat = %+v, %v; want device %d, inode %d", got, err, st.Dev, st.Ino)
	}
	if got.Birth.After(got.ModTime) {
		t.Errorf("born at %v, changed at %v", got.Birth, got.ModTime)
	}
	if err := os.Link(filepath.Join(root, "f"), filepath.Join(root, "g")); err != nil {
		t.Fatal(err)
	}
	if got, err = d.Stat("g"); err != nil || got.Links != 2 {
		t.Errorf("Stat of a file with two names = %+v, %v; want 2 links", got, err)
	}
}
