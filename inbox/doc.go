// Package inbox is the receiving half of notifications: it accepts each of them once.
//
// A sender of webhooks, such as a payment provider, repeats a notification until it is answered
// with success. An answer may get lost, so the same notification comes again after it was
// processed, or twice at the same time. An [Inbox]
//
//   - verifies the signature: [StandardWebhooks] or [HMAC], with several keys during a rotation.
//   - runs the change of the business data and records the notification's key in one transaction.
//   - answers a repeated notification with success, without running the change again.
//
// The transaction belongs to a [Store]. [Memory] is one for tests. Module engine has stores for
// SQLite and PostgreSQL in engine/inbox/sqlstore; for another database implement Store, which has
// one method.
//
// The package starts no goroutine and runs under testing/synctest.
package inbox
