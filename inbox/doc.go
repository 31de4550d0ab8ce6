// Package inbox receives notifications (webhooks) and applies each of them once.
//
// A sender of webhooks, such as a payment provider, repeats a notification until it gets a
// successful response. A response may get lost. So the same notification may come again after it
// was processed, or twice at the same time. An [Inbox]
//
//   - verifies the signature: [StandardWebhooks] or [HMAC], with several keys during a
//     rotation.
//   - changes the business data and stores the notification's key in one transaction.
//   - answers a repeated notification with success, without changing the data again.
//
// A [Store] runs the transaction. [Memory] is a Store for tests. Module engine has stores for
// SQLite and PostgreSQL in engine/inbox/sqlstore. For another database implement Store, which has
// one method.
//
// The package starts no goroutine and runs under testing/synctest.
package inbox
