package spooldir

// AsideName returns the name that a file has while it is being deleted.
var AsideName = asideName
