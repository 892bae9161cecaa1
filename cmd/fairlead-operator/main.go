// SPDX-License-Identifier: Apache-2.0

// Command fairlead-operator keeps a cluster as its Bundle says. See pkg/operator.
package main

import (
	"fmt"
	"os"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fairlead-dev/fairlead/pkg/operator"
)

func main() {
	ctrl.SetLogger(klog.Background())
	if err := operator.NewCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "fairlead-operator:", err)
		os.Exit(1)
	}
}
