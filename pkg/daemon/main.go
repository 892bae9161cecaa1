// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// Main runs a command whose logs are klog's and ends the process: with code 1 if the command could not be made or
// fails, else with 0. It takes what a constructor of a command returns.
func Main(cmd *cobra.Command, err error) {
	if err == nil {
		err = cmd.Execute()
	}
	if err != nil {
		klog.ErrorS(err, "Failed")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
	klog.Flush()
	os.Exit(0)
}
