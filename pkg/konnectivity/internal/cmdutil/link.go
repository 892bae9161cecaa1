// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/link"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
)

// LinkOptions are the flags about links that both commands have.
type LinkOptions struct {
	Protocol      string
	Window        int
	MaxWindow     int
	Budget        int64
	SlowReceivers string
	ConnBuffer    int
	PeerBuffer    int64
	TotalBuffer   int64
}

// DefaultLinkOptions returns the defaults.
func DefaultLinkOptions() LinkOptions {
	return LinkOptions{
		Protocol:      "auto",
		Window:        settings.DefaultLinkWindow,
		MaxWindow:     settings.DefaultLinkMaxWindow,
		Budget:        settings.DefaultLinkBudget,
		SlowReceivers: "reset",
		ConnBuffer:    settings.DefaultConnBuffer,
		PeerBuffer:    settings.DefaultPeerBuffer,
		TotalBuffer:   settings.DefaultTotalBuffer,
	}
}

// AddFlags adds the flags. peer is the program at the other end of a link, and
// receiver what takes the bytes that it sends.
func (o *LinkOptions) AddFlags(f *pflag.FlagSet, peer, receiver string) {
	f.StringVar(&o.Protocol, "link", o.Protocol, "Protocol for "+peer+"s: auto uses Fairlead's own protocol with peers that support it and upstream's with others; fairlead refuses peers that do not support it; upstream always uses upstream's.")
	f.IntVar(&o.Window, "link-window", o.Window, "Bytes that can be sent by the "+peer+" on a connection before the "+receiver+" accepts them.")
	f.IntVar(&o.MaxWindow, "link-max-window", o.MaxWindow, "Maximum in bytes to which the window of --link-window grows while the "+receiver+" accepts bytes quickly.")
	f.Int64Var(&o.Budget, "link-budget", o.Budget, "Bytes by which the sum of all windows may exceed --link-window per connection.")
	f.StringVar(&o.SlowReceivers, "slow-receivers", o.SlowReceivers, "What to do about a slow "+receiver+" behind an upstream "+peer+", whose protocol has no flow control: reset (reset its connection when --conn-buffer is full) or pause (stop reading from that "+peer+", which stalls all its connections).")
	f.IntVar(&o.ConnBuffer, "conn-buffer", o.ConnBuffer, "Memory limit for data queued to a slow "+receiver+" behind an upstream "+peer+", per connection.")
	f.Int64Var(&o.PeerBuffer, "peer-buffer", o.PeerBuffer, "Memory limit for data queued to slow "+receiver+"s, per "+peer+". When it is exceeded, the "+peer+"'s longest-stalled connections with the most data are reset. 0 means unlimited.")
	f.Int64Var(&o.TotalBuffer, "total-buffer", o.TotalBuffer, "Memory limit for all queues of the process; the same policy as --peer-buffer. 0 means unlimited.")
}

// Validate checks the flags.
func (o *LinkOptions) Validate() error {
	switch {
	case o.Protocol != "auto" && o.PeerProtocol() == settings.ProtocolAny:
		return fmt.Errorf("--link must be auto, fairlead or upstream, not %q", o.Protocol)
	case o.SlowReceivers != "reset" && o.SlowReceivers != "pause":
		return fmt.Errorf("--slow-receivers must be reset or pause, not %q", o.SlowReceivers)
	case o.Window < 64<<10 || o.MaxWindow < o.Window:
		return errors.New("--link-window must be at least 65536, and --link-max-window not smaller than it")
	case o.MaxWindow > link.MaxWindow:
		return fmt.Errorf("--link-max-window must be at most %d", link.MaxWindow)
	case o.Budget < 0 || o.ConnBuffer < 64<<10:
		return errors.New("--link-budget must not be negative, and --conn-buffer at least 65536")
	case tooSmall(o.PeerBuffer) || tooSmall(o.TotalBuffer):
		return errors.New("--peer-buffer and --total-buffer must be at least 1048576, or 0 for unlimited")
	}
	return nil
}

// tooSmall reports whether a limit would leave no room for healthy connections.
func tooSmall(bound int64) bool { return bound != 0 && bound < 1<<20 }

// Config returns what the flags say about links.
func (o *LinkOptions) Config() link.Config {
	return link.Config{Window: o.Window, MaxWindow: o.MaxWindow, Budget: link.NewBudget(o.Budget)}
}

// PeerProtocol is what is spoken with peers.
func (o *LinkOptions) PeerProtocol() settings.Protocol {
	switch p := settings.Protocol(o.Protocol); p {
	case settings.ProtocolUpstream, settings.ProtocolFairlead:
		return p
	}
	return settings.ProtocolAny
}

// Pause reports whether a slow receiver stops all connections of its peer: --slow-receivers=pause.
func (o *LinkOptions) Pause() bool { return o.SlowReceivers == "pause" }
