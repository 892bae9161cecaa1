package controlplane

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// DefaultTimeout is how long each wait for the kubelet may take.
const DefaultTimeout = 4 * time.Minute

// Options say what to do and where.
type Options struct {
	// Bundle to install; nil for the default one.
	Bundle *v1alpha1.Bundle
	// Root is put before every path of the node: "" for the node that this process
	// runs on. The processes looked for are always this machine's.
	Root string
	// Timeout bounds each wait for the kubelet. Default: DefaultTimeout. Going back
	// may take as long again.
	Timeout time.Duration
	// Kubeconfig of an administrator, for kubeadm's stored configuration and better
	// messages. Default: the node's admin.conf.
	Kubeconfig string
	// CACert and CAKey are the cluster's CA where the node does not have its key.
	CACert, CAKey string
	// ServerKubeconfig is a ready-made kubeconfig of the Konnectivity server.
	ServerKubeconfig string
	// Server is the URL of the API server in the kubeconfig that is made. Default:
	// this node's own.
	Server string
	// LeaveKubeadmConfig leaves kubeadm's stored configuration alone.
	LeaveKubeadmConfig bool
	// ServerOnly installs all but kube-apiserver's part, so that agents can connect
	// before anything depends on them; another run without it does the rest.
	ServerOnly bool
	// Force goes on where a preflight check says that something would break for a
	// while (webhooks without an agent, an untested Kubernetes version), or for some
	// API servers (a server count that is too low).
	Force bool

	// Progress is told what is being done. Default: cluster.Silent.
	Progress cluster.Progress
	// Notef is told what a user should know but need not act on. Default: nobody.
	Notef func(format string, args ...any)
	// Now is the clock for certificates. Default: time.Now.
	Now func() time.Time

	// after is told about every single effect; tests kill the process there.
	after func(point string)
	// user is the effective user id, waits replaces the waits for the kubelet; for
	// tests.
	user  func() int
	waits func(context.Context, *process) error
	// client replaces the administrator's, for tests.
	client kubernetes.Interface
	// proc is where processes are shown, health replaces the health checks, settle is
	// how long a program must stay ready, poll how often it is looked at; for tests.
	proc         string
	health       func(url string) error
	settle, poll time.Duration
	// mirrorPatience and mirrorLimit are the constants, for tests.
	mirrorPatience, mirrorLimit time.Duration
	// ready replaces the question whether kube-apiserver works before a run; for
	// tests.
	ready func() error
}

func (o Options) defaulted() Options {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Progress == nil {
		o.Progress = cluster.Silent
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
