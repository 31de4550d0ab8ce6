//go:build !(linux && (amd64 || arm64))

package vfs

func renameAt(from *osDir, oldName string, into *osDir, newName string) error {
	return moveByPath(from, oldName, into, newName)
}

func renameNewAt(from *osDir, oldName string, into *osDir, newName string) error {
	return moveNewByLink(from, oldName, into, newName)
}
