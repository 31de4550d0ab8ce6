// Package registry lets workers be found through NATS. A sender publishes a question on a subject,
// and each worker that listens there answers with its address. Nothing is stored: a worker that has
// ended does not answer, and a sender forgets one that has been silent for a while.
package registry
