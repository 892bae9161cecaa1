// SPDX-License-Identifier: Apache-2.0

package embedded

import "github.com/fairlead-dev/fairlead/pkg/cluster/process"

// etcd runs a single member, with client and server certificates as in kubeadm.
// It does not wait for the disk (--unsafe-no-fsync): that is much faster, and a
// test cluster may lose its last second if the machine crashes.
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
