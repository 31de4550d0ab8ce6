// Package registry lets workers be found through NATS. A sender publishes a request on a subject,
// and each worker that listens there responds with its address. Nothing is stored: a worker that
// has ended does not respond, and a sender removes a worker that has not responded for a while.
package registry
