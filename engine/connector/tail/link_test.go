package tail_test

import "os"

func osLink(from, to string) error { return os.Link(from, to) }
