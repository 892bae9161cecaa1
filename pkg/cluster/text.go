package cluster

import "fmt"

// Count writes "1 node" and "3 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Mebibytes writes an amount of memory.
func Mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
