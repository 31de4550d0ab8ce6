package spooldir

// AsideName is the name that a file has while it is being deleted.
var AsideName = asideName
