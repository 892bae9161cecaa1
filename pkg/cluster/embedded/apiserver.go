package embedded

import (
	"github.com/fairlead-dev/fairlead/pkg/bundle/aggregation"
	"github.com/fairlead-dev/fairlead/pkg/bundle/egress"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// serviceCIDR and serviceIP are the cluster's Service range and the address of
// Service default/kubernetes in it. Nothing routes them here.
const (
	serviceCIDR = "10.96.0.0/16"
	serviceIP   = "10.96.0.1"
	issuer      = "https://kubernetes.default.svc.cluster.local"
)

func (p *plan) apiServer() process.Spec {
	args := []string{
		"--bind-address=" + loopback,
		"--secure-port=" + p.port(portAPIServer),
		// Nobody but Service default/kubernetes would use the advertised address, and
		// that Service gets no endpoints: they may not be loopback addresses.
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
		"--kubelet-certificate-authority=" + p.PKI("ca.crt"),
		"--kubelet-client-certificate=" + p.PKI("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + p.PKI("apiserver-kubelet-client.key"),
		// The default prefers host names, which nothing resolves here.
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + p.PKI("sa.pub"),
		"--service-account-signing-key-file=" + p.PKI("sa.key"),
		"--service-cluster-ip-range=" + serviceCIDR,
	}
	args = append(args, p.flags(aggregation.APIServerFlags(p.aggregationBundle(), p.bundle.ControlPlane.PKIDir))...)
	if p.tunnel() {
		args = append(args, p.flags(egress.APIServerFlags(p.bundle))...)
	}
	probe := &process.Probe{URL: p.url("https", portAPIServer, "/readyz"), CAFile: p.PKI("ca.crt")}
	return p.spec(progAPIServer, progAPIServer, args, probe, progEtcd)
}
