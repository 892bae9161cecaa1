// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// plot is a bar chart: a group of bars per row, a bar per contestant.
type plot struct {
	file, title, unit string
	said              string // the part of keys that the title says
	keys              []string
	without           []string // contestants that would dwarf the others
}

var plots = []plot{
	{file: "throughput", title: "Throughput", unit: "MB/s", said: " MB/s", without: []string{directName},
		keys: []string{"down MB/s, 1", "down MB/s, 16", "down MB/s, 64", "up MB/s, 1", "up MB/s, 16", "up MB/s, 64"}},
	{file: "cpu", title: "Processor time", unit: "s per GB", said: " CPU s/GB",
		keys: []string{"down CPU s/GB server", "down CPU s/GB agent", "down CPU s/GB dialer", "up CPU s/GB server", "up CPU s/GB agent", "up CPU s/GB dialer"}},
	{file: "dial", title: "Dial and first byte", unit: "ms", said: " ms", keys: []string{"dial ms p50", "dial ms p99"}},
	{file: "echo", title: "Echo next to four downloads", unit: "ms", said: " ms", keys: []string{"echo ms p50 next to 4", "echo ms p99 next to 4"}},
}

var colors = map[string]string{
	upstream: "#b4543a", "ours": "#2f6f9f", "ours+upstream": "#d9a441", "upstream+ours": "#7a6fa8",
	sshName: "#8a8a8a", directName: "#c9c9c9", floorName: "#9fbf7f", relayName: "#cfe3b4", tlsRelayName: "#e3d9a8",
}

const (
	plotWidth  = 760
	plotHeight = 300
	plotLeft   = 56
	plotTop    = 72
	plotBottom = 44
	upright    = 24 // narrower bars have their values written upwards
)

// draw returns the chart as SVG, or nothing where there are no values.
func (p plot) draw(names []string, mode string, res *results) string {
	keys := slices.DeleteFunc(slices.Clone(p.keys), func(k string) bool { return len(res.v[k]) == 0 })
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		return slices.Contains(p.without, n) || !slices.ContainsFunc(keys, func(k string) bool { return len(res.v[k][n]) > 0 })
	})
	top := 0.0
	for _, k := range keys {
		for _, n := range names {
			top = max(top, median(res.v[k][n]))
		}
	}
	if top == 0 {
		return ""
	}
	step := tick(top)
	top = step * float64(int(top/step)+1)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", plotWidth, plotHeight, plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n"+`<text x="8" y="18" font-size="14">%s in %s, %s</text>`+"\n", p.title, p.unit, mode)
	y := func(v float64) float64 { return plotHeight - plotBottom - v/top*(plotHeight-plotTop-plotBottom) }
	for v := 0.0; v <= top*1.001; v += step {
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%.4g</text>`+"\n", plotLeft, plotWidth-8, y(v), y(v), plotLeft-6, y(v)+4, v)
	}
	p.legend(&b, names)
	p.bars(&b, names, keys, res, y)
	b.WriteString("</svg>\n")
	return b.String()
}

func (p plot) legend(b *strings.Builder, names []string) {
	x, y := plotLeft, 30
	for i, n := range names {
		width := 24 + 7*len(n)
		if x+width > plotWidth {
			x, y = plotLeft, y+16
		}
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="10" height="10" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", x, y, color(n, i), x+14, y+9, html.EscapeString(n))
		x += width
	}
}

func (p plot) bars(b *strings.Builder, names, keys []string, res *results, y func(float64) float64) {
	group := float64(plotWidth-plotLeft-8) / float64(len(keys))
	width := min(group*0.8/float64(len(names)), 60)
	for gi, k := range keys {
		left := plotLeft + group*float64(gi) + (group-width*float64(len(names)))/2
		for i, n := range names {
			v := median(res.v[k][n])
			if v == 0 {
				continue
			}
			x := left + width*float64(i)
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, x, y(v), width-1, y(0)-y(v), color(n, i))
			place := fmt.Sprintf(`x="%.1f" y="%.1f" text-anchor="middle"`, x+width/2, y(v)-3)
			if width < upright {
				place = fmt.Sprintf(`transform="translate(%.1f %.1f) rotate(-90)"`, x+width/2+3, y(v)-3)
			}
			fmt.Fprintf(b, `<text font-size="8" %s>%s</text>`+"\n", place, short(v))
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", plotLeft+group*(float64(gi)+0.5), plotHeight-plotBottom+18, html.EscapeString(strings.Replace(k, p.said, "", 1)))
	}
}

// short is a value that fits above its bar.
func short(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// tick is the distance of the lines: 1, 2 or 5 times a power of ten.
func tick(top float64) float64 {
	step := 1e-6
	for {
		for _, m := range []float64{1, 2, 5} {
			if top/(step*m) <= 6 {
				return step * m
			}
		}
		step *= 10
	}
}

func color(name string, i int) string {
	if c, ok := colors[name]; ok {
		return c
	}
	return []string{"#4aa39a", "#b06a8a"}[i%2]
}
