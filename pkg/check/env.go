// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// EnvSource returns the Env of the cluster that the kubeconfig file and context name (both may be empty: the usual defaults), or nil, nil
// when the cluster is not one that the source knows.
type EnvSource func(ctx context.Context, kubeconfig, kubeContext string) (*Env, error)

// Env is all that checks know of a cluster. Only Config must be set; Complete fills in the rest.
type Env struct {
	// Config reaches the API server as a cluster administrator.
	Config *rest.Config
	// Client is made from Config when nil.
	Client kubernetes.Interface
	// Cluster is the name for people; default: the API server's URL.
	Cluster string
	// Bundle is the bundle that the cluster was created with, if its provider recorded it; nil if unknown. Informational.
	Bundle *v1alpha1.Bundle

	// SchedulerName is the second scheduler's profile; default my-scheduler.
	SchedulerName string
	// Lease is the one that the second scheduler's replicas compete for; default kube-system/my-scheduler.
	Lease types.NamespacedName
	// StockLease is kube-scheduler's own; default kube-system/kube-scheduler.
	StockLease types.NamespacedName
	// OwnsIdentity says whether a Lease's holderIdentity, or the host that a scheduler names in its events, is that of a replica of the second
	// scheduler. Optional: without it the checks do not look for other schedulers, and their details say so.
	OwnsIdentity func(ctx context.Context, holder string) (bool, error)
	// FormerIdentity says the same of a replica that is gone; at is when it was last heard of. Optional.
	FormerIdentity func(ctx context.Context, holder string, at time.Time) (bool, error)
	// IdentityLimit describes which hosts OwnsIdentity cannot tell apart, for the check's details; empty if it can tell all.
	IdentityLimit string
	// Coexistence is what no other scheduler may use; default: the profile SchedulerName alone.
	Coexistence Coexistence
	// TakeoverLimit bounds the time from killing the leader to another holder; default 17 s.
	TakeoverLimit time.Duration
	// RecoveryLimit bounds the time from starting the agents to the first success of every call; default 60 s.
	RecoveryLimit time.Duration

	// Parts stops and starts parts of the cluster. Nil: checks that need it are skipped, and say so.
	Parts Parts
	// Leftovers tells which parts an earlier run stopped and never put back. Optional.
	Leftovers func(ctx context.Context) ([]Leftover, error)
	// ServerMetrics returns the Prometheus text of all konnectivity servers, one after another. Nil: the tunnel checks fail and say so.
	ServerMetrics func(ctx context.Context) ([]byte, error)
	// ServerMetricsAside says that ServerMetrics does not go through the API server, which may reach the servers through the tunnel. Reading then
	// raises no counter, and proofs need not account for it.
	ServerMetricsAside bool
	// APIServerMetrics returns the Prometheus text of all API servers, one after another. Nil: that of the one that answers, which is all there
	// is, or, behind a load balancer, any of them; see proof.go.
	APIServerMetrics func(ctx context.Context) ([]byte, error)
	// APIServerArgs returns the arguments of every kube-apiserver by name. Nil: those of the static Pods in kube-system, which a control plane
	// outside the cluster does not show.
	APIServerArgs func(ctx context.Context) (map[string][]string, error)
	// Gateway is how to reach the gateway; nil if the bundle has none.
	Gateway *Gateway
	// Programs returns the parts that run as processes of this machine instead of as Pods. Nil: all parts are Pods.
	Programs func(ctx context.Context) ([]Program, error)
	// SchedulerMetrics returns the Prometheus text of each replica of the second scheduler that is a process of this machine. Nil: all are Pods.
	SchedulerMetrics func(ctx context.Context) (map[string][]byte, error)
	// HostIP is an address of the machine this process runs on that the tunnel's agents can reach; not loopback, because EndpointSlices and
	// the API server's proxies refuse that.
	HostIP string
	// HostPort is where the checks' own webhook listens; 0 picks a free port.
	HostPort int
	// Probe says what pods the checks run and how such pods answer.
	Probe Probe
	// SwitchedOff says what cannot be checked in this cluster, and why: the key is a Component, or the ID of one check. These checks are
	// skipped with the reason.
	SwitchedOff map[string]string
	// AddressFault says that the nodes' address leads nowhere, and in its hint what repairs that. A check of its own fails with it. Nil: none.
	AddressFault error

	times times
}

// times are how long checks watch and wait; tests shorten them.
type times struct {
	// pending is how long a pod is watched to stay Pending.
	pending time.Duration
	// podEvery is the pace at which pods arrive during a failover.
	podEvery time.Duration
	// steady is how long a new leader is watched: long enough for the old one to come back and try.
	steady time.Duration
	// settle is how long an event may take to arrive after it is sent; events is how long a scheduler may hold it back before that.
	settle, events time.Duration
	// clear is how long a call may take to fail: the 30 s that kube-apiserver waits for an answer to a dial, and room for its answer.
	clear time.Duration
	// notice is how long konnectivity-server may take to see that its agents are gone; what comes after is measured anyway.
	notice time.Duration
	// programmed is how long kube-proxy may take to program the address of a new Service.
	programmed time.Duration
	// try bounds one try while waiting for recovery, so that a hanging one does not hide that the next would work.
	try time.Duration
	// again is the pause before a measurement is made again.
	again time.Duration
}

func defaultTimes() times {
	return times{
		pending: 5 * time.Second, podEvery: 500 * time.Millisecond, steady: 6 * time.Second, settle: eventOnItsWay, events: eventLost,
		clear: 35 * time.Second, notice: 10 * time.Second, programmed: 20 * time.Second, try: 10 * time.Second, again: 300 * time.Millisecond,
	}
}

// Probe describes the pods that checks run and how such pods answer logs, exec and port-forward.
type Probe struct {
	// PauseImage is for pods that only have to be scheduled; default registry.k8s.io/pause:3.10.
	PauseImage string
	// Image, Command and Args are for the pod that logs, exec and port-forward talk to; default agnhost 2.53 serving HTTP on 8080. On
	// simulated nodes the image is never pulled.
	Image   string
	Command []string
	Args    []string
	// LogWant is a text that the pod's log holds; empty: any line will do.
	LogWant string
	// ExecCommand copies ExecBytes bytes from standard input to standard output and ends; default `head -c 65536` and a moment of sleep. Not cat:
	// simulated nodes (kwok) do not pass on the end of the input. Not head alone: where a command ends right behind its bytes, exec loses
	// them now and then, also without a tunnel: the node's server resets the streams at once.
	ExecCommand []string
	// PortForwardPort is the port of the pod to forward to; default 8080.
	PortForwardPort int32
	// PortForwardPath is asked for over HTTP, with %s replaced by a random word which the answer must hold; default for agnhost
	// /echo?msg=%s. With PortForwardRaw, bytes sent to the port must come back instead.
	PortForwardPath string
	PortForwardRaw  bool
}

// Parts stops and starts parts of a cluster. All methods block until done and are idempotent. What cannot be stopped or killed in this cluster is
// a Skip.
type Parts interface {
	// StopScheduler stops every replica of the second scheduler and returns once none runs; StartScheduler puts them back.
	StopScheduler(ctx context.Context) error
	StartScheduler(ctx context.Context) error
	// KillLeader kills (SIGKILL, no lease release) the replica that holds the Lease; holder is the Lease's holderIdentity. The replica
	// comes back by itself.
	KillLeader(ctx context.Context, holder string) error
	// StopAgents stops every Konnectivity agent and returns once none runs; StartAgents puts them back.
	StopAgents(ctx context.Context) error
	StartAgents(ctx context.Context) error
}

// Defaults of Env.
const (
	DefaultSchedulerName = v1alpha1.DefaultSchedulerName
	DefaultPauseImage    = "registry.k8s.io/pause:3.10"
	DefaultProbeImage    = "registry.k8s.io/e2e-test-images/agnhost:2.53"
	DefaultTakeoverLimit = 17 * time.Second
	DefaultRecoveryLimit = 60 * time.Second

	stockSchedulerName = v1alpha1.DefaultSchedulerProfile
)

// switchedOff returns why the check is skipped in this cluster; "" if it is not.
func (e *Env) switchedOff(c Check) string {
	if reason := e.SwitchedOff[c.ID]; reason != "" {
		return reason
	}
	return e.SwitchedOff[string(c.Component)]
}

// Complete fills in defaults and makes the client.
func (e *Env) Complete() error {
	if e.Config == nil {
		return fmt.Errorf("check: Env.Config is not set")
	}
	if e.Client == nil {
		// The default of 5 requests a second would make the checks measure this client instead of the cluster.
		cfg := rest.CopyConfig(e.Config)
		cfg.QPS = -1
		// The checks know about the warnings of the server (Endpoints are deprecated).
		cfg.WarningHandler = rest.NoWarnings{}
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return fmt.Errorf("create a client for %s: %w", e.Config.Host, err)
		}
		e.Client = client
	}
	setDefault(&e.Cluster, e.Config.Host)
	setDefault(&e.SchedulerName, DefaultSchedulerName)
	setDefault(&e.Lease, types.NamespacedName{Namespace: v1alpha1.DefaultNamespace, Name: DefaultSchedulerName})
	setDefault(&e.StockLease, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: v1alpha1.KubeSchedulerLease})
	if e.Coexistence.SchedulerNames == nil {
		e.Coexistence.SchedulerNames = []string{e.SchedulerName}
	}
	setDefault(&e.TakeoverLimit, DefaultTakeoverLimit)
	setDefault(&e.RecoveryLimit, DefaultRecoveryLimit)
	setDefault(&e.times, defaultTimes())
	e.Probe.complete()
	return nil
}

func (p *Probe) complete() {
	setDefault(&p.PauseImage, DefaultPauseImage)
	setDefault(&p.Image, DefaultProbeImage)
	if p.Args == nil && p.Command == nil {
		p.Args = []string{"netexec", "--http-port=8080"}
	}
	if len(p.ExecCommand) == 0 {
		p.ExecCommand = []string{"sh", "-c", "head -c " + strconv.Itoa(ExecBytes) + " && { sleep 0.1 || sleep 1; }"}
	}
	setDefault(&p.PortForwardPort, 8080)
	if !p.PortForwardRaw {
		setDefault(&p.PortForwardPath, "/echo?msg=%s")
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
