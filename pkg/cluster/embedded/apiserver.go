// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// serviceCIDR and serviceIP are the cluster's Service range and the address of
// Service default/kubernetes in it. No program routes them here.
const (
	serviceCIDR = "10.96.0.0/16"
	serviceIP   = "10.96.0.1"
	issuer      = "https://kubernetes.default.svc.cluster.local"
)

func (p *plan) apiServer() process.Spec {
	args := []string{
		"--bind-address=" + loopback,
		"--secure-port=" + p.port(portAPIServer),
		// Only Service default/kubernetes would use the advertised address. It gets
		// no endpoints here, because endpoints may not be loopback addresses.
		"--advertise-address=" + loopback,
		"--endpoint-reconciler-type=none",
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + p.PKI("ca.crt"),
		"--tls-cert-file=" + p.PKI("apiserver.crt"),
		"--tls-private-key-file=" + p.PKI("apiserver.key"),
		"--etcd-servers=" + p.url("https", portEtcdClient, ""),
		"--etcd-cafile=" + p.PKI("etcd/ca.crt"),
		"--etcd-certfile=" + p.PKI("apiserver-etcd-client.crt"),
		"--etcd-keyfile=" + p.PKI("apiserver-etcd-client.key"),
		"--kubelet-client-certificate=" + p.PKI("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + p.PKI("apiserver-kubelet-client.key"),
		// The default prefers host names, which cannot be resolved here.
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + p.PKI("sa.pub"),
		"--service-account-signing-key-file=" + p.PKI("sa.key"),
		"--service-cluster-ip-range=" + serviceCIDR,
	}
	args = append(args, p.flags(apiserver.Flags(p.routedBundle(), apiserver.Server{KubeletCAFile: p.PKI("ca.crt"), FrontProxyDir: p.bundle.ControlPlane.PKIDir}))...)
	probe := &process.Probe{URL: p.url("https", portAPIServer, "/readyz"), CAFile: p.PKI("ca.crt")}
	return p.spec(progAPIServer, progAPIServer, args, probe, progEtcd)
}
