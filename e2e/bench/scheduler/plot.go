// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// colors are readable on white and on black.
var colors = map[string]string{documented: "#b0413e", stock: "#7a869a", ours: "#2f7ed8", sameShare: "#8fb8e8", standard: "#5aa469"}

// plot draws pods per second and CPU per pod as bars, a group for each workload and size.
func plot(rows []row) string {
	const left, rowHeight, width = 165, 18, 290
	var b strings.Builder
	height := 60 + len(rows)*rowHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="900" height="%d" font-family="sans-serif" font-size="11" fill="#666">`+"\n", height)
	draw := func(x int, title string, value func(r row) float64, format string) {
		var largest float64
		for _, r := range rows {
			largest = max(largest, value(r))
		}
		fmt.Fprintf(&b, `<text x="%d" y="20" font-size="13">%s</text>`+"\n", x, title)
		for i, r := range rows {
			y := 35 + i*rowHeight
			length := value(r) / max(largest, 1e-9) * width
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="12" fill="%s"/><text x="%.1f" y="%d">`+format+"</text>\n",
				x, y, length, colors[r.Scheduler], float64(x)+length+4, y+10, value(r))
		}
	}
	for i, r := range rows {
		fmt.Fprintf(&b, `<text x="4" y="%d">%d %s %s</text>`+"\n", 45+i*rowHeight, r.Nodes, r.Workload, r.Scheduler)
	}
	draw(left, "pods bound per second", func(r row) float64 { return r.PodsPerSecond }, "%.0f")
	draw(left+width+70, "scheduler CPU, ms per pod", func(r row) float64 { return r.CPUMillisPerPod }, "%.2f")
	b.WriteString("</svg>\n")
	return b.String()
}
