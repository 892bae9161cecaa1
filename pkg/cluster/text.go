// SPDX-License-Identifier: Apache-2.0

package cluster

import "fmt"

// Count formats a number with a noun: "1 node" or "3 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Mebibytes formats an amount of memory.
func Mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
