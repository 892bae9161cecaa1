// SPDX-License-Identifier: Apache-2.0

// Command promtext prints its resident memory. With the build tag client_golang it also links that
// library, and nothing else changes. See docs/adr/0013-own-netx-and-promtext.md.
package main

import (
	"fmt"
	_ "net/http" // which server and agent link anyway
	"os"
	"runtime/debug"
	"strings"
)

// library is what the build tag adds.
var library = "no metrics library"

func main() {
	debug.FreeOSMemory() // what start-up has left behind would differ from run to run
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fmt.Fprintln(os.Stderr, "promtext:", err)
		os.Exit(1)
	}
	var kib float64
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %g kB", &kib); err == nil {
			fmt.Printf("%s: %.1f MB resident\n", library, kib*1024/1e6)
			return
		}
	}
}
