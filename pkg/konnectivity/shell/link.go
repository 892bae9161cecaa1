package shell

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/link"
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
	BusyPoll      time.Duration
}

// DefaultLinkOptions returns the defaults.
func DefaultLinkOptions() LinkOptions {
	return LinkOptions{Protocol: "auto", Window: 256 << 10, MaxWindow: 4 << 20, Budget: 32 << 20, SlowReceivers: "reset", ConnBuffer: 16 << 20,
		PeerBuffer: 256 << 20, TotalBuffer: 1 << 30, BusyPoll: 60 * time.Microsecond}
}

// AddFlags adds the flags. peer is the program at the other end of a link, and
// receiver what takes the bytes that it sends.
func (o *LinkOptions) AddFlags(f *pflag.FlagSet, peer, receiver string) {
	f.StringVar(&o.Protocol, "link", o.Protocol, "Protocol with "+peer+"s: auto prefers our own and falls back to the reference protocol; reference never uses our own.")
	f.IntVar(&o.Window, "link-window", o.Window, "Bytes that the "+peer+" may send on a connection ahead of its "+receiver+".")
	f.IntVar(&o.MaxWindow, "link-max-window", o.MaxWindow, "Bytes to which that window grows while the "+receiver+" keeps up.")
	f.Int64Var(&o.Budget, "link-budget", o.Budget, "Bytes by which all windows together may exceed --link-window.")
	f.StringVar(&o.SlowReceivers, "slow-receivers", o.SlowReceivers, "What happens to a "+receiver+" that lags behind where the "+peer+" has no flow control: reset closes its connection when --conn-buffer is full, and lets the "+peer+" send little from half of that on, as far as others need no more; pause makes all connections of that "+peer+" wait.")
	f.IntVar(&o.ConnBuffer, "conn-buffer", o.ConnBuffer, "Bytes held for a "+receiver+" that lags behind where the "+peer+" has no flow control.")
	f.Int64Var(&o.PeerBuffer, "peer-buffer", o.PeerBuffer, "Bytes held for all "+receiver+"s that lag on connections of one "+peer+"; when it is exceeded, those that have stood still longest with most are reset. 0 is no bound.")
	f.Int64Var(&o.TotalBuffer, "total-buffer", o.TotalBuffer, "Bytes in all queues of the process; likewise.")
	f.DurationVar(&o.BusyPoll, "busy-poll", o.BusyPoll, "How long the process looks for more when its connections have just fallen silent, before it sleeps: echoes are faster, for processor time that is else unused. It does not beside bulk transfers, where others want the processor, where nothing comes in that time, or where it uses more than one processor. 0 sleeps at once, which suits a Pod with a CPU limit; at most 1ms.")
}

// Validate checks the flags.
func (o *LinkOptions) Validate() error {
	switch {
	case o.Protocol != "auto" && o.Protocol != "reference":
		return fmt.Errorf("--link must be auto or reference, not %q", o.Protocol)
	case o.SlowReceivers != "reset" && o.SlowReceivers != "pause":
		return fmt.Errorf("--slow-receivers must be reset or pause, not %q", o.SlowReceivers)
	case o.Window < 64<<10 || o.MaxWindow < o.Window:
		return errors.New("--link-window must be at least 65536, and --link-max-window not smaller than it")
	case o.MaxWindow > link.MaxWindow:
		return fmt.Errorf("--link-max-window must be at most %d", link.MaxWindow)
	case o.Budget < 0 || o.ConnBuffer < 64<<10:
		return errors.New("--link-budget must not be negative, and --conn-buffer at least 65536")
	case tooSmall(o.PeerBuffer) || tooSmall(o.TotalBuffer):
		return errors.New("--peer-buffer and --total-buffer must be at least 1048576, or 0 for no bound")
	case o.BusyPoll < 0 || o.BusyPoll > time.Millisecond:
		return fmt.Errorf("--busy-poll must be between 0 and 1ms, not %v", o.BusyPoll)
	}
	return nil
}

// tooSmall tells whether a bound would leave no room for healthy connections.
func tooSmall(bound int64) bool { return bound != 0 && bound < 1<<20 }

// Config returns what the flags say about links.
func (o *LinkOptions) Config() link.Config {
	return link.Config{Window: o.Window, MaxWindow: o.MaxWindow, Budget: link.NewBudget(o.Budget)}
}

// Reference tells whether only the reference protocol is spoken.
func (o *LinkOptions) Reference() bool { return o.Protocol == "reference" }

// Pause tells whether all wait for one that lags.
func (o *LinkOptions) Pause() bool { return o.SlowReceivers == "pause" }
