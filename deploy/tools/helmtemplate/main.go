// SPDX-License-Identifier: Apache-2.0

// Command helmtemplate does what `helm template` does with a chart, by Helm's own
// engine: helmtemplate CHART NAMESPACE [VALUES]. It is a module of its own, so that
// Helm does not weigh on the product; the test of deploy/helm builds and runs it.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "helmtemplate:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 || len(args) > 3 {
		return fmt.Errorf("usage: helmtemplate CHART NAMESPACE [VALUES]")
	}
	chart, err := loader.Load(args[0])
	if err != nil {
		return err
	}
	values := common.Values{}
	if len(args) == 3 {
		if values, err = common.ReadValuesFile(args[2]); err != nil {
			return err
		}
	}
	release := common.ReleaseOptions{Name: "fairlead", Namespace: args[1], Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, release, nil)
	if err != nil {
		return err
	}
	rendered, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(rendered[name]) != "" {
			fmt.Printf("---\n%s\n", rendered[name])
		}
	}
	return nil
}
