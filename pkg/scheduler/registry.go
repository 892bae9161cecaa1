// SPDX-License-Identifier: Apache-2.0

// Package scheduler is the second kube-scheduler: Kubernetes' own command with Fairlead's plugins and the guards that
// a second scheduler needs. Start at NewCommand; a plugin is added to Options.
package scheduler

import (
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/failoverbarrier"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/foreignnominations"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/politepreemption"
	"github.com/fairlead-dev/fairlead/pkg/scheduler/plugins/tunnelreach"
)

// Options registers Fairlead's out-of-tree plugins. A plugin lives in pkg/scheduler/plugins/<name>, has its arguments in
// pkg/scheduler/pluginargs, and gets a line here.
func Options() []app.Option {
	return []app.Option{
		app.WithPlugin(tunnelreach.Name, tunnelreach.New),
		app.WithPlugin(politepreemption.Name, politepreemption.New),
		app.WithPlugin(foreignnominations.Name, foreignnominations.New),
		app.WithPlugin(failoverbarrier.Name, failoverbarrier.New),
	}
}
