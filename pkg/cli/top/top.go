// SPDX-License-Identifier: Apache-2.0

// Package top is the command "fairlead top".
package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/cli/ui"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

// The extra format of tables.
const wide = "wide"

// limit bounds the requests.
const limit = 15 * time.Second

type options struct {
	streams genericiooptions.IOStreams
	cluster clusterflags.Flags
	output  string
}

// NewCommand makes the command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "top", Short: "Show the load of the tunnel", Long: "Show the load of the tunnel.", Example: "  fairlead top tunnels", GroupID: "bundle", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTunnels(streams))
	return cmd
}

func newTunnels(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, cluster: clusterflags.New()}
	cmd := &cobra.Command{
		Use: "tunnels", Aliases: []string{"tunnel"}, Short: "Show what each agent carries for each server",
		Long: `Show what each agent of the tunnel carries for each konnectivity-server, the
busiest first: round trip, open connections, dials, failed dials and bytes since
the agent connected.

The bundle needs tunnelAPI.enabled: true.`,
		Example: `  fairlead top tunnels
  fairlead top tunnels --context prod -o wide`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.cluster.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "json, yaml or wide")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml", wide}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if !slices.Contains([]string{"", "json", "yaml", wide}, o.output) {
		return fmt.Errorf("--output %q: choose json, yaml or wide", o.output)
	}
	found, err := o.cluster.Load()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(found.Config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	state, err := observe.ReadTunnelState(ctx, client.Discovery().RESTClient())
	if errors.Is(err, observe.ErrNoTunnelAPI) {
		return fmt.Errorf("%w: set tunnelAPI.enabled: true in the bundle, and install it", err)
	}
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: no answer within %s: see \"fairlead check\"", err, limit)
	}
	if err != nil {
		if hint := check.HintOf(err); hint != "" {
			return fmt.Errorf("%w\nhint: %s", err, hint)
		}
		return err
	}
	view := Of(state)
	format := o.output
	if format == wide {
		format = ""
	}
	return ui.Write(o.streams.Out, format, view, func(w io.Writer) error { return view.Write(w, o.output == wide, time.Now()) })
}

// Tunnels is what "fairlead top tunnels" shows.
type Tunnels struct {
	Tunnels []Tunnel `json:"tunnels"`
	// Unreachable are the servers that do not answer, so that their values are missing or old.
	Unreachable []string `json:"unreachable,omitempty"`
}

// Tunnel is what one agent carries for one server. An agent without any server has no Server.
type Tunnel struct {
	Agent           string `json:"agent"`
	Node            string `json:"node,omitempty"`
	Connected       bool   `json:"connected"`
	Server          string `json:"server,omitempty"`
	RTTMicroseconds int64  `json:"rttMicroseconds,omitempty"`
	OpenConnections int64  `json:"openConnections"`
	PendingDials    int64  `json:"pendingDials"`
	Dials           int64  `json:"dials"`
	DialFailures    int64  `json:"dialFailures"`
	BytesToAgent    int64  `json:"bytesToAgent"`
	BytesFromAgent  int64  `json:"bytesFromAgent"`
	Draining        bool   `json:"draining,omitempty"`
	// Stale means that the server does not answer: the values are its last ones.
	Stale    bool      `json:"stale,omitempty"`
	Links    int32     `json:"links,omitempty"`
	Protocol string    `json:"protocol,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Version  string    `json:"version,omitempty"`
}

// Of lists the tunnels, the busiest first.
func Of(s observe.TunnelState) *Tunnels {
	out := &Tunnels{Tunnels: []Tunnel{}}
	for i := range s.Agents {
		a := &s.Agents[i]
		base := Tunnel{Agent: a.Name, Node: a.Status.NodeName, Connected: observe.Connected(a), Version: a.Status.Version}
		if len(a.Status.Servers) == 0 {
			out.Tunnels = append(out.Tunnels, base)
		}
		for _, server := range a.Status.Servers {
			t := base
			t.Stale = server.Stale
			t.Server, t.RTTMicroseconds, t.Draining, t.Links, t.Protocol = server.ServerID, server.RTTMicroseconds, server.Draining, server.Links, server.Protocol
			t.OpenConnections, t.PendingDials, t.Dials, t.DialFailures = server.OpenConnections, server.PendingDials, server.DialsTotal, server.DialFailures
			t.BytesToAgent, t.BytesFromAgent, t.Since = server.BytesToAgent, server.BytesFromAgent, server.Since.Time
			out.Tunnels = append(out.Tunnels, t)
		}
	}
	slices.SortFunc(out.Tunnels, func(a, b Tunnel) int {
		return cmp.Or(cmp.Compare(b.OpenConnections, a.OpenConnections), cmp.Compare(b.Dials, a.Dials), strings.Compare(a.Agent, b.Agent), strings.Compare(a.Server, b.Server))
	})
	for i := range s.Servers {
		if !observe.Reachable(&s.Servers[i]) {
			out.Unreachable = append(out.Unreachable, s.Servers[i].Name)
		}
	}
	return out
}

// Write prints a table.
func (v *Tunnels) Write(out io.Writer, wide bool, now time.Time) error {
	if len(v.Tunnels) == 0 {
		_, _ = fmt.Fprintln(out, "No agents.")
	} else {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		header := "AGENT\tNODE\tSERVER\tRTT\tOPEN\tDIALS\tFAILS\tTO-AGENT\tFROM-AGENT"
		if wide {
			header += "\tPENDING\tLINKS\tPROTOCOL\tDRAINING\tAGE\tVERSION"
		}
		_, _ = fmt.Fprintln(w, header)
		for _, t := range v.Tunnels {
			_, _ = fmt.Fprintln(w, strings.Join(t.cells(wide, now), "\t"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(v.Unreachable) > 0 {
		_, err := fmt.Fprintf(out, "\nNo answer from %s: its values are missing or old.\n", strings.Join(v.Unreachable, ", "))
		return err
	}
	return nil
}

func (t Tunnel) cells(wide bool, now time.Time) []string {
	server, rtt := t.Server, "-"
	if server == "" {
		server = "(not connected)"
	}
	if t.Stale {
		server += " (stale)"
	} else if t.RTTMicroseconds > 0 {
		rtt = fmt.Sprintf("%.1fms", float64(t.RTTMicroseconds)/1000)
	}
	out := []string{
		t.Agent, cmp.Or(t.Node, "-"), server, rtt, fmt.Sprint(t.OpenConnections), fmt.Sprint(t.Dials), fmt.Sprint(t.DialFailures),
		size(t.BytesToAgent), size(t.BytesFromAgent),
	}
	if !wide {
		return out
	}
	age := "-"
	if !t.Since.IsZero() {
		age = duration.HumanDuration(now.Sub(t.Since))
	}
	return append(out, fmt.Sprint(t.PendingDials), fmt.Sprint(t.Links), cmp.Or(t.Protocol, "-"), fmt.Sprint(t.Draining), age, cmp.Or(t.Version, "-"))
}

// size prints bytes with a binary unit, as kubectl does.
func size(n int64) string {
	value, units := float64(n), []string{"", "Ki", "Mi", "Gi", "Ti", "Pi"}
	for len(units) > 1 && value >= 1024 {
		value, units = value/1024, units[1:]
	}
	if units[0] == "" {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%.1f%s", value, units[0])
}
