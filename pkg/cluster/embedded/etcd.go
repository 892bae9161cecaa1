package embedded

import "github.com/fairlead-dev/fairlead/pkg/cluster/process"

// etcd runs one member, with certificates on both sides as kubeadm has it. It
// does not wait for the disk (--unsafe-no-fsync): a cluster for trying things
// out may lose its last second when the machine crashes, and is much faster.
func (p *plan) etcd() process.Spec {
	client, peer := p.url("https", portEtcdClient, ""), p.url("https", portEtcdPeer, "")
	args := []string{
		"--name=" + p.Name,
		"--data-dir=" + p.EtcdDir(),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + p.Name + "=" + peer,
		"--listen-metrics-urls=" + p.url("http", portEtcdMetrics, ""),
		"--client-cert-auth=true",
		"--trusted-ca-file=" + p.PKI("etcd/ca.crt"),
		"--cert-file=" + p.PKI("etcd/server.crt"),
		"--key-file=" + p.PKI("etcd/server.key"),
		"--peer-client-cert-auth=true",
		"--peer-trusted-ca-file=" + p.PKI("etcd/ca.crt"),
		"--peer-cert-file=" + p.PKI("etcd/server.crt"),
		"--peer-key-file=" + p.PKI("etcd/server.key"),
		"--unsafe-no-fsync=true",
		"--log-level=warn",
	}
	return p.spec(progEtcd, progEtcd, args, &process.Probe{URL: p.url("http", portEtcdMetrics, "/readyz")})
}
