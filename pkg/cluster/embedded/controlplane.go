// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// controllerManager runs without leader election: there is only one, and after
// a restart it would wait for its predecessor's Lease to expire.
func (p *plan) controllerManager() process.Spec {
	kubeconfig := p.Kubeconfig(progControllerManager)
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + loopback,
		"--secure-port=" + p.port(portControllerManager),
		"--tls-cert-file=" + p.PKI("components.crt"),
		"--tls-private-key-file=" + p.PKI("components.key"),
		"--leader-elect=false",
		"--kube-api-qps=" + cluster.ControllerManagerQPS,
		"--kube-api-burst=" + cluster.ControllerManagerBurst,
		// The controller removes the not-ready taint of new nodes in its next
		// period, which is 5 s by default.
		"--node-monitor-period=1s",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + p.PKI("sa.key"),
		"--root-ca-file=" + p.PKI("ca.crt"),
		"--cluster-signing-cert-file=" + p.PKI("ca.crt"),
		"--cluster-signing-key-file=" + p.PKI("ca.key"),
		"--requestheader-client-ca-file=" + p.PKI("front-proxy-ca.crt"),
	}
	probe := &process.Probe{URL: p.url("https", portControllerManager, "/healthz"), CAFile: p.PKI("ca.crt")}
	return p.spec(progControllerManager, progControllerManager, args, probe, progAPIServer)
}

// scheduler is the default kube-scheduler with its Lease, next to which the
// second scheduler must run.
func (p *plan) scheduler() process.Spec {
	kubeconfig := p.Kubeconfig(progScheduler)
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + loopback,
		"--secure-port=" + p.port(portScheduler),
		"--tls-cert-file=" + p.PKI("components.crt"),
		"--tls-private-key-file=" + p.PKI("components.key"),
	}
	probe := &process.Probe{URL: p.url("https", portScheduler, "/readyz"), CAFile: p.PKI("ca.crt")}
	return p.spec(progScheduler, progScheduler, args, probe, progAPIServer)
}
