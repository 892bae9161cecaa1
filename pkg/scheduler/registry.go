// Package scheduler is the second kube-scheduler: Kubernetes' own command with Fairlead's plugins and the guards that
// a second scheduler needs. Start at NewCommand; a plugin is added to Options.
package scheduler

import (
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Options registers Fairlead's out-of-tree plugins. A plugin lives in pkg/scheduler/plugins/<name> and gets a line
// here: app.WithPlugin(<name>.Name, <name>.New).
func Options() []app.Option {
	return nil
}
