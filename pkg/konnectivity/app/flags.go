package app

import (
	"flag"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"sigs.k8s.io/apiserver-network-proxy/pkg/util"
)

// defaultVerbosity is the default of --v, as in upstream's binaries.
const defaultVerbosity = "4"

// addFlags gives a command upstream's flags: those of its options and klog's.
func addFlags(cmd *cobra.Command, options *pflag.FlagSet) error {
	flags := cmd.Flags()
	flags.AddFlagSet(options)
	local := flag.NewFlagSet(cmd.Name(), flag.ExitOnError)
	klog.InitFlags(local)
	if err := local.Set("v", defaultVerbosity); err != nil {
		return fmt.Errorf("set klog's verbosity: %w", err)
	}
	local.VisitAll(func(f *flag.Flag) {
		f.Name = util.Normalize(f.Name)
		flags.AddGoFlag(f)
	})
	return nil
}
