// SPDX-License-Identifier: Apache-2.0

// Package cmdutil is what the two commands share: how a command starts, is asked
// to stop and ends, klog's flags, the health and admin listeners, the flags about
// links, and telling systemd that the process is ready. Start at Program.
package cmdutil

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/daemon"
	"github.com/fairlead-dev/fairlead/pkg/internal/version"
)

// Program is one of the two commands.
type Program struct {
	Name, About, Example string
	// Flags adds the program's own flags.
	Flags func(*pflag.FlagSet)
	// Run serves until it is asked to stop. ctx carries the logger.
	Run func(ctx context.Context, signals *daemon.Signals) error
}

// Command returns the cobra command. Call it once per process: klog's flags are
// global.
func (p Program) Command() *cobra.Command {
	cmd := &cobra.Command{
		Use: p.Name, Long: p.About, Example: p.Example, Args: cobra.NoArgs, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SilenceUsage = true
			defer heedLimit(os.Getenv, "/")()
			defer tuneMemory()()
			logger := klog.Background()
			logger.Info("Starting", "program", p.Name, "version", version.Get().String())
			signals := daemon.Notify()
			defer signals.Stop()
			return p.Run(klog.NewContext(cmd.Context(), logger), signals)
		},
	}
	p.Flags(cmd.Flags())
	addKlogFlags(cmd.Flags())
	cmd.Flags().SetNormalizeFunc(normalize)
	return cmd
}

// stopBound is what is left, after the grace for open connections, for closing
// listeners and links and for taking leave of the API server.
const stopBound = 3 * time.Second

// Bounded runs run, and leaves it behind when it has not ended some seconds after
// the grace for open connections: a process that was asked to stop does stop.
func Bounded(ctx context.Context, signals *daemon.Signals, grace time.Duration, run func() error) error {
	err := daemon.Until(daemon.After(signals.Deadline(grace), stopBound), run)
	if errors.Is(err, daemon.ErrForced) {
		klog.FromContext(ctx).Info("Stopped with work still open")
		return nil
	}
	return err
}

// Grace returns a context that ends after d, or at the second signal.
func Grace(ctx context.Context, d time.Duration, signals *daemon.Signals) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d)
	go func() {
		select {
		case <-signals.Second:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// DefaultID takes an ID from the environment or makes a random UUID.
func DefaultID(env string) string {
	if id := os.Getenv(env); id != "" {
		return id
	}
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// CheckFiles returns an error for the first file, by the flag's name, that does not
// exist. Empty paths are skipped.
func CheckFiles(files map[string]string) error {
	for _, flag := range slices.Sorted(maps.Keys(files)) {
		if files[flag] == "" {
			continue
		}
		if _, err := os.Stat(files[flag]); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
	}
	return nil
}

// AtLeastOne returns an error for a limit, by the flag's name, that would let nothing
// through.
func AtLeastOne(limits map[string]int) error {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if n := limits[name]; n < 1 {
			return fmt.Errorf("--%s must be at least 1, not %d", name, n)
		}
	}
	return nil
}

// addKlogFlags adds klog's flags with dashes in their names, and --v with
// default 4 as upstream's commands have it.
func addKlogFlags(fs *pflag.FlagSet) {
	local := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(local)
	_ = local.Set("v", "4")
	local.VisitAll(func(f *flag.Flag) {
		f.Name = strings.ReplaceAll(f.Name, "_", "-")
		fs.AddGoFlag(f)
	})
}

// normalize lets flags be written with underscores.
func normalize(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}
