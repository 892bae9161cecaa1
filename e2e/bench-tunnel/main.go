// Command bench-tunnel measures pairs of tunnel server and agent as black boxes:
// ours, upstream's, mixed ones, and no tunnel at all. Measurements of the pairs
// alternate; the table shows medians and ratios to the pair named upstream.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "target" {
		if err := runTarget(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var o options
	var pairs string
	flag.StringVar(&pairs, "pairs", "", "comma-separated name=server:agent, the baseline named upstream")
	flag.StringVar(&o.modes, "modes", "grpc,http-connect", "modes to measure")
	flag.StringVar(&o.only, "only", "", "comma-separated prefixes of measurements; empty for all")
	flag.IntVar(&o.reps, "reps", 3, "repetitions")
	flag.DurationVar(&o.dur, "time", 2*time.Second, "duration of one throughput measurement")
	flag.IntVar(&o.idle, "idle", 5000, "idle connections for the memory measurement")
	flag.BoolVar(&o.direct, "direct", true, "measure without a tunnel, too")
	flag.Parse()
	for _, p := range strings.Split(pairs, ",") {
		name, bins, ok := strings.Cut(p, "=")
		server, agent, ok2 := strings.Cut(bins, ":")
		if !ok || !ok2 {
			fmt.Fprintf(os.Stderr, "bad pair %q\n", p)
			os.Exit(2)
		}
		o.pairs = append(o.pairs, pair{name, server, agent})
	}
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
