// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kind/pkg/cluster/nodes"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/certs"
)

// Ports of the further API servers and of upstream's server for its agents.
const (
	portDirect   = 6444
	portUpstream = 6445
	portFairlead = 6446
	portAgents   = 8199
)

// In directories that the API server's Pod mounts already.
const (
	manifests      = "/etc/kubernetes/manifests"
	upstreamEgress = "/etc/kubernetes/konnectivity/upstream.yaml"
	upstreamSocket = "/etc/kubernetes/konnectivity-server/upstream.socket"
	programs       = "/bench"
)

// threePaths starts three further API servers and upstream's pair. Kubelets and controllers use the first API server only,
// so the others have the same load. They are reached at the node's address, so that the way to them is the same.
func threePaths(ctx context.Context, c *harness.Cluster, programs string) ([]path, error) {
	node := c.Nodes.ControlPlanes[0]
	address, err := harness.Address(node)
	if err != nil {
		return nil, err
	}
	if err := startUpstream(ctx, c, address, programs); err != nil {
		return nil, err
	}
	manifest, err := harness.Run(ctx, node, "cat", manifests+"/kube-apiserver.yaml")
	if err != nil {
		return nil, err
	}
	paths := []path{{name: "direct"}, {name: "upstream"}, {name: "fairlead"}}
	for i, p := range []int{portDirect, portUpstream, portFairlead} {
		text, err := apiServer(manifest, paths[i].name, p)
		if err != nil {
			return nil, err
		}
		if err := write(ctx, node, filepath.Join(manifests, "kube-apiserver-"+paths[i].name+".yaml"), text, "0600"); err != nil {
			return nil, err
		}
		if paths[i].cluster, err = c.At("https://" + net.JoinHostPort(address, strconv.Itoa(p))); err != nil {
			return nil, err
		}
		if paths[i].file, err = kubeconfig(ctx, c, paths[i].name, paths[i].cluster.Config.Host); err != nil {
			return nil, err
		}
	}
	for _, p := range paths {
		err := harness.Wait(ctx, 5*time.Minute, "the API server of path "+p.name+" to reach Pods", func(ctx context.Context) error {
			_, err := p.cluster.ServiceGet(ctx, "healthz", nil)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// apiServer returns the manifest of a further API server, which is as kubeadm made the first one.
func apiServer(manifest, name string, at int) ([]byte, error) {
	var pod corev1.Pod
	if err := yaml.Unmarshal([]byte(manifest), &pod); err != nil {
		return nil, err
	}
	pod.Name += "-" + name
	pod.Labels = map[string]string{"component": pod.Name} // not found by what looks for the first one
	container := &pod.Spec.Containers[0]
	egress := false
	container.Command = slices.DeleteFunc(container.Command, func(arg string) bool {
		is := strings.HasPrefix(arg, "--egress-selector-config-file=")
		egress = egress || is
		return is && name != "fairlead" || strings.HasPrefix(arg, "--secure-port=")
	})
	if !egress {
		return nil, errors.New("the API server does not use the tunnel")
	}
	container.Command = append(container.Command, "--secure-port="+strconv.Itoa(at), "--endpoint-reconciler-type=none")
	if name == "upstream" {
		container.Command = append(container.Command, "--egress-selector-config-file="+upstreamEgress)
	}
	container.Ports = nil
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
		probe.HTTPGet.Port = intstr.FromInt(at)
	}
	return yaml.Marshal(&pod)
}

// startUpstream runs upstream's server on the control plane and its agents on the workers, in mode grpc as
// the bundle's.
func startUpstream(ctx context.Context, c *harness.Cluster, address, dir string) error {
	egress := "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n- name: cluster\n  connection:\n    proxyProtocol: GRPC\n    transport: {uds: {udsName: " + upstreamSocket + "}}\n"
	own := filepath.Join(c.Dir, "upstream")
	if err := os.MkdirAll(own, 0o700); err != nil {
		return err
	}
	if err := certs.Write(own, address); err != nil {
		return err
	}
	server := []string{"--mode=grpc", "--uds-name=" + upstreamSocket, "--delete-existing-uds-file", "--server-port=0", "--agent-port=" + strconv.Itoa(portAgents),
		"--cluster-cert=" + programs + "/crt", "--cluster-key=" + programs + "/key", "--cluster-ca-cert=" + programs + "/ca",
		"--admin-port=18195", "--health-port=18192", "--logtostderr=true", "--v=0"}
	agent := []string{"--proxy-server-host=" + address, "--proxy-server-port=" + strconv.Itoa(portAgents), "--ca-cert=" + programs + "/ca",
		"--agent-cert=" + programs + "/crt", "--agent-key=" + programs + "/key", "--admin-server-port=18194", "--health-server-port=18193", "--logtostderr=true", "--v=0"}
	for _, node := range c.Nodes.All() {
		name, args := "agent", agent
		if slices.Contains(c.Nodes.ControlPlanes, node) {
			name, args = "server", server
			if err := write(ctx, node, upstreamEgress, []byte(egress), "0600"); err != nil {
				return err
			}
		}
		for _, file := range []string{filepath.Join(dir, name), filepath.Join(own, "ca"), filepath.Join(own, "crt"), filepath.Join(own, "key")} {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := write(ctx, node, filepath.Join(programs, filepath.Base(file)), data, "0700"); err != nil {
				return err
			}
		}
		if _, err := harness.Run(ctx, node, "systemd-run", append([]string{"--unit=bench-upstream", filepath.Join(programs, name)}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// write writes a file of a node, whole or not at all.
func write(ctx context.Context, node nodes.Node, file string, data []byte, mode string) error {
	temporary := filepath.Join("/tmp", filepath.Base(file))
	if _, err := harness.Run(ctx, node, "mkdir", "-p", filepath.Dir(file)); err != nil {
		return err
	}
	if err := node.CommandContext(ctx, "sh", "-c", "cat > "+temporary).SetStdin(bytes.NewReader(data)).Run(); err != nil {
		return fmt.Errorf("write %s of %s: %w", temporary, node, err)
	}
	_, err := harness.Run(ctx, node, "install", "-m", mode, temporary, file)
	return err
}

// kubeconfig writes one for an API server.
func kubeconfig(ctx context.Context, c *harness.Cluster, name, server string) (file string, err error) {
	text, err := c.Must(ctx, "kubeconfig", "--name", c.Name)
	if err != nil {
		return "", err
	}
	config, err := clientcmd.Load([]byte(text))
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = server
	}
	file = filepath.Join(c.Dir, "kubeconfig-"+name)
	return file, clientcmd.WriteToFile(*config, file)
}
