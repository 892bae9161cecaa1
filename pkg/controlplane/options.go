// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// DefaultTimeout is how long each wait for the kubelet may take.
const DefaultTimeout = 4 * time.Minute

const (
	pollEvery = 250 * time.Millisecond
	// settled is how long a restarted program must stay ready: a program that
	// crashes usually does so at once.
	settled = 2 * time.Second
	// mirrorPatience is how long the kubelet may take to update a mirror Pod by
	// itself. Its first attempt failed because the API server was unavailable, and it
	// retries within a minute.
	mirrorPatience = 5 * time.Second
	// mirrorLimit bounds the whole wait for the mirror Pod: only what the API shows
	// depends on it.
	mirrorLimit = 2 * time.Minute
	// logLines is the number of log lines to show of a program that does not
	// become ready.
	logLines = 8
)

// Options configure what to install and where.
type Options struct {
	// Bundle to install; nil for the default one.
	Bundle *v1alpha1.Bundle
	// Root is prepended to every path of the node; "" means the node that this
	// process runs on. The processes inspected are always those of this machine.
	Root string
	// Timeout bounds each wait for the kubelet. Default: DefaultTimeout. A rollback
	// may take as long again.
	Timeout time.Duration
	// Kubeconfig is an administrator's, used for kubeadm's stored configuration and
	// for more detailed messages. Default: the node's admin.conf.
	Kubeconfig string
	// CACert and CAKey are the cluster's CA, for nodes that do not have the CA's key.
	CACert, CAKey string
	// ServerKubeconfig is a ready-made kubeconfig of the Konnectivity server.
	ServerKubeconfig string
	// Server is the API server's URL in the generated kubeconfig. Default: this
	// node's own API server.
	Server string
	// LeaveKubeadmConfig leaves kubeadm's stored configuration alone.
	LeaveKubeadmConfig bool
	// ServerOnly installs everything except kube-apiserver's part, so that agents can
	// connect before anything depends on them. A second run without ServerOnly
	// installs the rest.
	ServerOnly bool
	// IgnorePreflight are IDs of preflight checks whose errors become warnings, from
	// [IgnorableChecks].
	IgnorePreflight []string

	// Progress receives the steps of the run. Default: progress.Silent.
	Progress progress.Reporter
	// Notef receives messages that a user should know but need not act on. Default:
	// they are discarded.
	Notef func(format string, args ...any)
	// Now is the clock for certificates. Default: time.Now.
	Now func() time.Time

	// after is called after every single effect; tests kill the process there.
	after func(point string)
	// user returns the effective user ID, and waits replaces the waits for the
	// kubelet. For tests.
	user  func() int
	waits func(context.Context, *kubelet.Program) error
	// client replaces the administrator's client. For tests.
	client kubernetes.Interface
	// proc is the proc file system's mount point, health replaces the health checks,
	// settle is how long a program must stay ready, and poll is the interval between
	// checks. For tests.
	proc         string
	health       func(url string) error
	settle, poll time.Duration
	// mirrorPatience and mirrorLimit replace the constants of the same names. For
	// tests.
	mirrorPatience, mirrorLimit time.Duration
	// rollback is how long each wait of a rollback may take, if not Timeout. For tests.
	rollback time.Duration
	// ready replaces the check before a run that kube-apiserver works. For tests.
	ready func() error
}

func (o Options) defaulted() Options {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Progress == nil {
		o.Progress = progress.Silent
	}
	if o.Notef == nil {
		o.Notef = func(string, ...any) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.proc == "" {
		o.proc = "/proc"
	}
	if o.settle == 0 {
		o.settle = settled
	}
	if o.poll == 0 {
		o.poll = pollEvery
	}
	if o.mirrorLimit == 0 {
		o.mirrorPatience, o.mirrorLimit = mirrorPatience, mirrorLimit
	}
	o.Bundle = o.Bundle.Defaulted()
	return o
}
