// Package registry lets senders find workers through NATS. A sender publishes a request on a
// subject. Each worker listens on this subject and answers with its address. Nothing is stored: a
// worker that has ended does not answer, and senders remove a worker that has not answered for a
// while.
package registry
