// SPDX-License-Identifier: Apache-2.0

// Package panels draws dashboards as Grafana would, without Grafana: rows of graphs, as SVG. Start at [Dashboard].
package panels

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/monitoring"
)

// Point is a value at a time, in seconds since 1970.
type Point struct{ At, Value float64 }

// Series is a line of a graph.
type Series struct {
	Legend string
	Points []Point // by time
}

// Range is the time that graphs show, in seconds since 1970, and between two points.
type Range struct{ From, To, Step float64 }

// Sizes are in pixels. Panels are three in a row, as in the dashboards for Grafana.
const (
	perRow      = 3
	panelWidth  = 400
	panelHeight = 240
	rowHeight   = 28
	headHeight  = 36

	graphLeft, graphRight, graphTop, graphHeight = 58, 12, 28, 120

	legendLine    = 13
	legendLines   = 5
	legendColumns = 2
	legendLetters = 29 // in a column; lines of one column have room for all
)

// colors tell lines apart on white; after the last one they begin again, dashed.
var colors = []string{"#2f6f9f", "#d9822b", "#4f8f3f", "#b4433a", "#7a5fa8", "#7f5a3c", "#c864a0", "#5f6b75", "#a5a12d", "#2f9f9a"}

// Dashboard draws all panels. Data has the series of each panel, by row and place in it.
func Dashboard(d monitoring.Dashboard, data [][][]Series, r Range) string {
	height := headHeight
	for _, row := range d.Rows {
		height += rowHeight + lines(len(row.Panels))*panelHeight
	}
	var b strings.Builder
	width := perRow * panelWidth
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="11" fill="#333333">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n"+`<text x="8" y="24" font-size="18">%s</text>`+"\n", html.EscapeString(d.Title))
	top := headHeight
	for i, row := range d.Rows {
		fmt.Fprintf(&b, `<rect x="0" y="%d" width="%d" height="%d" fill="#eeeeee"/><text x="8" y="%d" font-size="13">%s</text>`+"\n",
			top, width, rowHeight-6, top+16, html.EscapeString(row.Title))
		top += rowHeight
		for j, p := range row.Panels {
			fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", j%perRow*panelWidth, top+j/perRow*panelHeight)
			draw(&b, p, data[i][j], r)
			b.WriteString("</g>\n")
		}
		top += lines(len(row.Panels)) * panelHeight
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func lines(panels int) int { return (panels + perRow - 1) / perRow }

// draw draws one panel at the origin.
func draw(b *strings.Builder, p monitoring.Panel, series []Series, r Range) {
	fmt.Fprintf(b, `<text x="8" y="14" font-weight="bold">%s</text>`+"\n", html.EscapeString(p.Title))
	step, top := scale(p.Unit, largest(series))
	y := func(v float64) float64 { return graphTop + graphHeight*(1-v/top) }
	x := func(at float64) float64 {
		return graphLeft + (at-r.From)/(r.To-r.From)*(panelWidth-graphLeft-graphRight)
	}
	for i := 0; float64(i)*step <= top*1.001; i++ {
		v := float64(i) * step
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			graphLeft, panelWidth-graphRight, y(v), y(v), graphLeft-5, y(v)+4, format(p.Unit, v))
	}
	for seconds, every := 0.0, minutes(r); seconds <= r.To-r.From; seconds += every {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#777777">%.0f min</text>`+"\n", x(r.From+seconds), graphTop+graphHeight+14, seconds/60)
	}
	if len(series) == 0 {
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" fill="#b4433a">no data</text>`+"\n", panelWidth/2, graphTop+graphHeight/2)
	}
	for i, s := range series {
		for _, part := range parts(s.Points, r.Step) {
			var points []string
			for _, at := range part {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(at.At), y(min(at.Value, top))))
			}
			fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke-width="1.3" %s/>`+"\n", strings.Join(points, " "), stroke(i))
		}
	}
	legend(b, series)
}

// minutes is the distance of the times below a graph.
func minutes(r Range) float64 { return 60 * max(1, math.Ceil((r.To-r.From)/60/5)) }

func stroke(i int) string {
	s := `stroke="` + colors[i%len(colors)] + `"`
	if i >= len(colors) {
		s += ` stroke-dasharray="4 2"`
	}
	return s
}

// parts cuts a line where values are missing.
func parts(points []Point, step float64) (out [][]Point) {
	for i, p := range points {
		if i == 0 || p.At-points[i-1].At > 1.5*step {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], p)
	}
	return out
}

// legend names as many series as there is room for, in one column if that is enough for long names.
func legend(b *strings.Builder, series []Series) {
	columns := legendColumns
	if len(series) <= legendLines {
		columns = 1
	}
	for i, s := range series {
		top := graphTop + graphHeight + 30 + i/columns*legendLine
		left := 12 + i%columns*(panelWidth/columns-8)
		if i == columns*legendLines-1 && len(series) > i+1 {
			fmt.Fprintf(b, `<text x="%d" y="%d" fill="#777777">and %d more</text>`+"\n", left, top, len(series)-i)
			return
		}
		text := []rune(s.Legend)
		if columns > 1 && len(text) > legendLetters {
			text = append(text[:legendLetters-1], '…')
		}
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%d" y2="%d" stroke-width="2" %s/><text x="%d" y="%d" font-size="10">%s</text>`+"\n",
			left, left+12, top-4, top-4, stroke(i), left+16, top, html.EscapeString(string(text)))
	}
}

func largest(series []Series) (top float64) {
	for _, s := range series {
		for _, p := range s.Points {
			if !math.IsInf(p.Value, 0) {
				top = max(top, p.Value)
			}
		}
	}
	return top
}

const day = 86400

// scale returns the distance of the lines and the top of a graph. A graph of zeros goes to 1.
func scale(unit string, largest float64) (step, top float64) {
	const most = 5
	base, factors, step := 10.0, []float64{1, 2, 5}, 1e-6
	switch {
	case unit == "bytes":
		base, factors, step = 2, []float64{1}, 1
	case unit == "s" && largest >= 2*day:
		step = day
	}
	if largest <= 0 {
		largest = 1
	}
	for ; ; step *= base {
		for _, f := range factors {
			if largest/(step*f) <= most {
				return step * f, step * f * math.Ceil(largest/(step*f))
			}
		}
	}
}

// format writes a value with a unit of Grafana.
func format(unit string, v float64) string {
	small := func(v float64, units []string, base float64) string {
		i := 0
		for v >= base && i+1 < len(units) {
			v, i = v/base, i+1
		}
		return strings.TrimSpace(fmt.Sprintf("%.3g %s", v, units[i]))
	}
	switch {
	case v == 0:
		return "0"
	case unit == "bytes":
		return small(v, []string{"B", "KiB", "MiB", "GiB"}, 1024)
	case unit == "percentunit":
		return fmt.Sprintf("%.3g%%", v*100)
	case unit == "ops":
		return fmt.Sprintf("%.3g/s", v)
	case unit == "s" && v < 1:
		return small(v*1e6, []string{"µs", "ms", "s"}, 1000)
	case unit == "s" && v >= day:
		return fmt.Sprintf("%.3g d", v/day)
	case unit == "s":
		return fmt.Sprintf("%.3g s", v)
	}
	return small(v, []string{"", "k", "M", "G"}, 1000)
}

// Legend fills a legend such as "{{instance}} {{stage}}" with the labels of a series.
func Legend(template string, labels map[string]string) string {
	for name, value := range labels {
		template = strings.ReplaceAll(template, "{{"+name+"}}", value)
	}
	for {
		before, after, found := strings.Cut(template, "{{")
		_, after, closed := strings.Cut(after, "}}")
		if !found || !closed {
			return strings.TrimSpace(template)
		}
		template = before + after
	}
}

// Sort orders series by their legends, so that equal ones have equal colors in all pictures.
func Sort(series []Series) {
	slices.SortFunc(series, func(a, b Series) int { return strings.Compare(a.Legend, b.Legend) })
}
