//penstock:pure

package window
