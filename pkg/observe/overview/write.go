// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// Style is how an overview looks.
type Style struct {
	// Wide adds tables of servers, agents and all certificates, which are as wide as their cells.
	Wide bool
	// Width is the terminal's. With 0, rows have 80 columns, and problems and notes any length.
	Width int
}

// Write prints the overview.
func (o *Overview) Write(out io.Writer, style Style) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		for _, line := range wrap(fmt.Sprintf(format, args...), cmp.Or(style.Width, 80)-len(names)) {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", name, line)
			name = ""
		}
	}
	version := o.Version
	if version == "" {
		version = "version unknown"
	}
	row("Cluster", "%s: %s, Kubernetes %s", or(o.Cluster, "(no context)"), o.State, version)
	row("API server", "%s", o.Server)
	if o.Nodes != nil {
		row("Nodes", "%s ready", o.Nodes)
	} else {
		row("Nodes", "unknown")
	}
	o.writeTunnel(row)
	o.writeScheduler(row)
	if len(o.Certificates) > 0 {
		c := o.Certificates[0]
		row("Certificates", "%s expires first, in %d days (%s)", c.Use, c.Days, c.Expires.Format(time.DateOnly))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if style.Wide {
		if err := o.writeWide(out); err != nil {
			return err
		}
	}
	for _, list := range []struct {
		title string
		lines []string
	}{{"Problems", o.Problems}, {"Notes", o.Notes}, {"Unknown", o.Unknown}} {
		if len(list.lines) > 0 {
			_, _ = fmt.Fprintf(out, "\n%s:\n", list.title)
			for _, l := range list.lines {
				if style.Width > 0 {
					l = strings.Join(words(l, style.Width-4), "\n    ")
				}
				_, _ = fmt.Fprintf(out, "  %s\n", l)
			}
		}
	}
	return nil
}

// names is the longest name of a row, or longer.
const names = "Certificates  "

// wrap breaks a long row after commas, and at blanks where that is not enough.
func wrap(text string, columns int) []string {
	var out []string
	at := ""
	for _, part := range strings.SplitAfter(text, ", ") {
		if at != "" && len([]rune(at))+len([]rune(strings.TrimSuffix(part, " "))) > columns {
			out = append(out, words(strings.TrimSuffix(at, " "), columns)...)
			at = ""
		}
		at += part
	}
	return append(out, words(at, columns)...)
}

// words breaks a long text at blanks.
func words(text string, columns int) []string {
	var out []string
	at := ""
	for word := range strings.SplitSeq(text, " ") {
		if at != "" && len([]rune(at))+1+len([]rune(word)) > columns {
			out = append(out, at)
			at = ""
		} else if at != "" {
			at += " "
		}
		at += word
	}
	return append(out, at)
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func (o *Overview) writeTunnel(row func(name, format string, args ...any)) {
	t := o.Tunnel
	switch {
	case t.Installed == nil:
		row("Tunnel", "unknown")
		return
	case !*t.Installed:
		row("Tunnel", "none")
		return
	}
	row("Tunnel", "servers %s ready, agents %s ready", t.Servers, t.Agents)
	agents, connections, known := 0, 0, 0
	for _, s := range t.Each {
		if s.Agents == nil {
			continue
		}
		known++
		agents += *s.Agents
		if s.Connections != nil {
			connections += *s.Connections
		}
	}
	if known > 0 {
		row("", "%s of agents, %s", progress.Count(agents, "link"), progress.Count(connections, "connection"))
	}
	if t.Egress != nil {
		row("", "%s", t.Egress)
	}
	if t.API != nil {
		gone := "" // an agent that was replaced is listed for some minutes
		if n := t.API.Agents.All - t.API.Agents.Ready; n > 0 {
			gone = fmt.Sprintf(" (%d gone)", n)
		}
		row("", "tunnel API: %s servers answer, agents connected: %d%s, connections: %d", t.API.Servers, t.API.Agents.Ready, gone, t.API.Connections)
	}
}

func (d *Dials) String() string {
	text := fmt.Sprintf("%s, %d failed", progress.Count(d.All, "dial"), d.Failed)
	if d.P50 != nil && d.P99 != nil {
		text += fmt.Sprintf(", p50 %.3g ms, p99 %.3g ms", *d.P50, *d.P99)
	}
	return text
}

func (o *Overview) writeScheduler(row func(name, format string, args ...any)) {
	s := o.Scheduler
	switch {
	case s.Installed == nil:
		row("Scheduler", "unknown")
	case !*s.Installed:
		row("Scheduler", "no second scheduler")
	default:
		row("Scheduler", "replicas %s ready, profiles %s", s.Replicas, strings.Join(s.Profiles, ", "))
		if s.Leader != "" && s.Renewed != nil {
			row("", "leader %s, renewed %.1f s ago", s.Leader, *s.Renewed)
		}
		if s.Queue != nil {
			row("", "queue: %s", countsOf(s.Queue))
		}
	}
	if len(s.Pods) > 0 {
		more := ""
		if s.PodsAtLeast {
			more = " and more"
		}
		row("Pods", "%s%s", countsOf(s.Pods), more)
	}
	switch {
	case s.Pending == nil:
		row("Pods waiting", "unknown")
	case len(s.Pending) == 0:
		row("Pods waiting", "none")
	default:
		row("Pods waiting", "%s", countsOf(s.Pending))
	}
}

func countsOf(m map[string]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s", m[k], or(k, "(no scheduler)")))
	}
	return strings.Join(parts, ", ")
}

func (o *Overview) writeWide(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(o.Tunnel.Each) > 0 {
		_, _ = fmt.Fprintln(w, "\nSERVER\tREADY\tRESTARTS\tAGENTS\tCONNS\tDIALS\tFAILED\tP50\tP99")
		for _, s := range o.Tunnel.Each {
			dials := "-\t-\t-\t-"
			if s.Dials != nil {
				dials = fmt.Sprintf("%d\t%d\t%s\t%s", s.Dials.All, s.Dials.Failed, milliseconds(s.Dials.P50), milliseconds(s.Dials.P99))
			}
			_, _ = fmt.Fprintf(w, "%s\t%v\t%d\t%s\t%s\t%s\n", short(s.Name), s.Ready, s.Restarts, number(s.Agents), number(s.Connections), dials)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if api := o.Tunnel.API; api != nil && len(api.EachAgent) > 0 {
		_, _ = fmt.Fprintln(w, "\nAGENT\tNODE\tCONNECTED\tSERVERS\tCONNS")
		for _, a := range api.EachAgent {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%d\n", a.Name, or(a.Node, "-"), a.Connected, or(strings.Join(a.Servers, ","), "-"), a.Connections)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(o.Certificates) > 0 {
		_, _ = fmt.Fprintln(w, "\nCERTIFICATE\tSUBJECT\tEXPIRES\tDAYS")
		for _, c := range o.Certificates {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\n", c.Use, c.Subject, c.Expires.Format(time.DateOnly), c.Days)
		}
	}
	return w.Flush()
}

func number(n *int) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func milliseconds(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.3gms", *v)
}

// short drops the kind of a program's name.
func short(name string) string { return name[strings.LastIndex(name, " ")+1:] }
