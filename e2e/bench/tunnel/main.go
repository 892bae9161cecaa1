// SPDX-License-Identifier: Apache-2.0

// Command bench-tunnel measures pairs of tunnel server and agent as black boxes:
// ours, upstream's, mixed ones, `ssh -D`, a frontend without an agent, and no
// tunnel at all. Measurements alternate; the tables show medians, ratios to the
// pair named upstream, and whether the targets are reached.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// children are the processes that this program starts of itself, with the number of
// their arguments, which is the least one where it is negative.
var children = map[string]struct {
	args int
	run  func(args []string) error
}{
	"target":    {0, func([]string) error { return runTarget() }},
	"load":      {4, runLoad},
	"floor":     {3, func(a []string) error { return runFloor(a[0], a[1], a[2]) }},
	"relay":     {2, func(a []string) error { return runRelay(a[0], a[1]) }},
	"tls-floor": {3, func(a []string) error { return runTLSFloor(a[0], a[1], a[2]) }},
	"first":     {-1, runFirst},
	"tls-relay": {3, func(a []string) error { return runTLSRelay(a[0], a[1], a[2]) }},
}

func run(args []string) error {
	if len(args) > 0 {
		if c, ok := children[args[0]]; ok && (len(args) == 1+c.args || c.args < 0 && len(args) > -c.args) {
			return c.run(args[1:])
		}
	}
	var o options
	var pairs string
	f := flag.NewFlagSet("bench-tunnel", flag.ExitOnError)
	f.StringVar(&pairs, "pairs", "", "comma-separated name=server:agent; the baseline is named upstream, mixed pairs have a + in the name")
	f.StringVar(&o.modes, "modes", "grpc,http-connect", "modes to measure")
	f.StringVar(&o.only, "only", "", "comma-separated prefixes of measurements: "+measurementNames()+"; empty for all")
	f.IntVar(&o.reps, "reps", 3, "repetitions")
	f.DurationVar(&o.dur, "time", 600*time.Millisecond, "duration of one throughput measurement")
	f.IntVar(&o.idle, "idle", 5000, "idle connections for the memory measurement")
	f.BoolVar(&o.direct, "direct", true, "measure without a tunnel, too")
	f.BoolVar(&o.floor, "floor", true, "measure a frontend that dials itself, too, and one with a relay before it, plain and with TLS")
	f.BoolVar(&o.ssh, "ssh", true, "measure ssh -D, too, in mode http-connect, where sshd is there")
	f.BoolVar(&o.goals, "goals", false, "print the comparison with the targets alone")
	f.StringVar(&o.docs, "docs", "", "directory with tunnel-benchmark.md, into which the results go")
	_ = f.Parse(args)
	for _, p := range strings.Split(pairs, ",") {
		name, bins, ok := strings.Cut(p, "=")
		server, agent, ok2 := strings.Cut(bins, ":")
		if !ok || !ok2 {
			return fmt.Errorf("bad pair %q", p)
		}
		o.pairs = append(o.pairs, pair{name: name, server: server, agent: agent})
	}
	return o.run(args)
}

func measurementNames() string {
	var names []string
	for _, m := range measurements {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}
