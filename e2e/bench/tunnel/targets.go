// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
)

// goal is the target of ours in one row.
type goal struct {
	key string
	// ratio to upstream, or with absolute the value itself.
	absolute bool
	// atLeast or atMost, by mode.
	atLeast, atMost map[string]float64
}

func both(v float64) map[string]float64 { return map[string]float64{"grpc": v, "http-connect": v} }
func by(grpc, connect float64) map[string]float64 {
	return map[string]float64{"grpc": grpc, "http-connect": connect}
}

// goals are the targets, in the order of the table.
var goals = []goal{
	{key: "down MB/s, 1", atLeast: by(1.9, 3.5)},
	{key: "down MB/s, 16", atLeast: by(2.4, 3.5)},
	{key: "down MB/s, 64", atLeast: by(2.5, 3.5)},
	{key: "up MB/s, 1", atLeast: by(1.7, 3.8)},
	{key: "up MB/s, 16", atLeast: by(1.9, 3.8)},
	{key: "up MB/s, 64", atLeast: by(2.1, 3.8)},
	{key: "down CPU s/GB server", atMost: by(0.45, 0.22)},
	{key: "down CPU s/GB agent", atMost: both(0.33)},
	{key: "up CPU s/GB server", atMost: by(0.45, 0.22)},
	{key: "up CPU s/GB agent", atMost: both(0.33)},
	{key: "dial ms p50", atMost: by(0.65, 0.6)},
	{key: "dial ms p99", atMost: by(0.65, 0.6)},
	{key: "dials/s, 64", atLeast: by(1.5, 2)},
	{key: "echo us p50", atMost: both(0.7)},
	{key: "echo ms p99 next to 4", atMost: both(0.25)},
	{key: "client stops: rate kept %", absolute: true, atLeast: both(95)},
	{key: "client stops: echo p99 x", absolute: true, atMost: both(2)},
	{key: "client stops: failed dials of 10", absolute: true, atMost: both(0)},
	{key: "client slow: rate kept %", absolute: true, atLeast: both(95)},
	{key: "client slow: echo p99 x", absolute: true, atMost: both(2)},
	{key: "client slow: failed dials of 10", absolute: true, atMost: both(0)},
	{key: "far end stops: rate kept %", absolute: true, atLeast: both(95)},
	{key: "far end stops: echo p99 x", absolute: true, atMost: both(2)},
	{key: "far end stops: failed dials of 10", absolute: true, atMost: both(0)},
	{key: "client at 12 MB/s: rate kept %", absolute: true, atLeast: both(95)},
	{key: "client at 12 MB/s: echo p99 x", absolute: true, atMost: both(2)},
	{key: "client at 12 MB/s: failed dials of 10", absolute: true, atMost: both(0)},
	{key: "client at 12 MB/s alone: of its rate %", absolute: true, atLeast: both(95)},
	{key: "client at 12 MB/s alone: longest keystroke ms", absolute: true, atMost: both(50)},
	{key: "RSS MB at 0", atMost: both(0.45)},
	{key: "RSS MB at 5000 idle", atMost: both(0.43)},
	{key: "RSS growth MB, 100 stalled", absolute: true, atMost: both(64)},
	{key: "lost on write-then-close %", absolute: true, atMost: both(0)},
	{key: "transfers not whole of 50", absolute: true, atMost: both(0)},
	{key: "fds left after churn", absolute: true, atMost: both(0)},
	{key: "goroutines left after churn", absolute: true, atMost: both(0)},
	{key: "failed of 40, 10 s after freeze", absolute: true, atMost: both(0)},
	{key: "exit s, idle agent", absolute: true, atMost: both(1)},
	{key: "exit s, idle server", absolute: true, atMost: both(1)},
	{key: "exit s, agent with a connection, grace 2 s", absolute: true, atMost: both(2.5)},
	{key: "exit s, server with a connection, grace 2 s", absolute: true, atMost: both(2.5)},
	{key: "exit s, server with a connection, no grace", absolute: true, atMost: both(1)},
}

// judgment is one row of the comparison with the targets.
type judgment struct {
	key          string
	ours, goal   float64
	floor, relay float64 // in the unit of ours; 0 where not measured
	sealed, ssh  float64
	least, ratio bool
	pass, ahead  bool // ahead of ssh -D, or not compared
	withSSH      bool
	without      bool // ours, or what it is compared with, has no value: that is no pass
}

// judge compares what was measured with the targets.
func judge(mode string, res *results) (rows []judgment) {
	for _, g := range goals {
		if len(res.v[g.key]) == 0 { // it was not measured
			continue
		}
		base := 1.0
		if !g.absolute {
			base = median(res.v[g.key][upstream])
		}
		if len(res.v[g.key]["ours"]) == 0 || base == 0 {
			rows = append(rows, judgment{key: g.key, without: true, ahead: true})
			continue
		}
		j := judgment{key: g.key, ours: median(res.v[g.key]["ours"]) / base, ratio: !g.absolute, ahead: true,
			floor: median(res.v[g.key][floorName]) / base, relay: median(res.v[g.key][relayName]) / base, sealed: median(res.v[g.key][tlsRelayName]) / base, ssh: median(res.v[g.key][sshName]) / base}
		if v, ok := g.atLeast[mode]; ok {
			j.goal, j.least, j.pass = v, true, j.ours >= v
		} else {
			j.goal, j.pass = g.atMost[mode], j.ours <= g.atMost[mode]
		}
		if j.withSSH = len(res.v[g.key][sshName]) > 0; j.withSSH {
			j.ahead = j.ours <= j.ssh
			if j.least {
				j.ahead = j.ours >= j.ssh
			}
		}
		rows = append(rows, j)
	}
	return rows
}

// printGoals writes the comparison as a table in Markdown.
func printGoals(w io.Writer, mode string, res *results) {
	rows := judge(mode, res)
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| %s | ours | target | | no agent | plain relay | TLS relay | `ssh -D` |\n|---|--:|--:|---|--:|--:|--:|--:|\n", mode)
	for _, j := range rows {
		if j.without {
			fmt.Fprintf(w, "| %s | no value | – | ✗ | – | – | – | – |\n", j.key)
			continue
		}
		unit, sign, mark := "", "≤", "✗"
		if j.ratio {
			unit = "x"
		}
		if j.least {
			sign = "≥"
		}
		if j.pass {
			mark = "✓"
		}
		ssh := cell(j.ssh, unit)
		if j.withSSH {
			ssh = fmt.Sprintf("%.2f%s", j.ssh, unit)
		}
		if !j.ahead {
			ssh += " ✗"
		}
		fmt.Fprintf(w, "| %s | %.2f%s | %s %.4g%s | %s | %s | %s | %s | %s |\n", j.key, j.ours, unit, sign, j.goal, unit, mark,
			cell(j.floor, unit), cell(j.relay, unit), cell(j.sealed, unit), ssh)
	}
}

func cell(v float64, unit string) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f%s", v, unit)
}
