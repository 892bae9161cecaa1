// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WrongClock has nodes see another time: one worker of a kind cluster, whose kubelet is restarted, or all nodes of an embedded one,
// which kwok simulates. It returns their names. back undoes it. Only what maintains the node sees the time, not its Pods.
func (c *Cluster) WrongClock(ctx context.Context, offset time.Duration) (names []string, back func(context.Context) error, err error) {
	if c.Simulated() {
		return c.wrongClockOfKwok(ctx, offset)
	}
	node := c.Nodes.Workers[0]
	program, err := os.Open(filepath.Join(c.Dir, "testpod"))
	if err != nil {
		return nil, nil, err
	}
	defer program.Close()
	back = func(ctx context.Context) error {
		_, err := Run(ctx, node, "sh", "-c", "test ! -e "+rightKubelet+" || mv -f "+rightKubelet+" "+kubelet+"; systemctl restart kubelet")
		for _, n := range c.Nodes.ControlPlanes {
			_, killed := Run(ctx, n, "pkill", "-KILL", "-f", "^"+controllers)
			err = errors.Join(err, killed)
		}
		return err
	}
	script := fmt.Sprintf("set -e; cat >%[1]s; chmod 755 %[1]s; mv %[2]s %[3]s; printf '#!/bin/sh\\nexec %[1]s clock %[4]s %[3]s \"$@\"\\n' >%[2]s; chmod 755 %[2]s; systemctl restart kubelet",
		podTool, kubelet, rightKubelet, offset)
	var out bytes.Buffer
	if err := node.CommandContext(ctx, "sh", "-c", script).SetStdin(program).SetStdout(&out).SetStderr(&out).Run(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w\n%s", node, errors.Join(err, back(ctx)), out.String())
	}
	return []string{node.String()}, back, nil
}

// kubelet is the program in a node's image, and rightKubelet its place while a script is there instead.
const kubelet, rightKubelet = "/usr/bin/kubelet", "/usr/bin/kubelet-of-the-right-time"

// controllers is restarted when clocks are right again: it remembers the newest renewal of a node's Lease, and would take the node for dead
// until its clock has reached that time.
const controllers = "kube-controller-manager"

// wrongClockOfKwok starts the program with the same arguments as before.
func (c *Cluster) wrongClockOfKwok(ctx context.Context, offset time.Duration) (names []string, back func(context.Context) error, err error) {
	kwok, ok := c.Processes("kwok").(processes)
	if !ok {
		return nil, nil, errors.New("kwok is no process")
	}
	report, err := kwok.supervisor.Status(ctx)
	if err != nil {
		return nil, nil, err
	}
	p, ok := report.Find(kwok.prefix)
	if !ok {
		return nil, nil, errors.New("the cluster has no process kwok")
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
	if err != nil {
		return nil, nil, err
	}
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	if err := kwok.Stop(ctx); err != nil {
		return nil, nil, err
	}
	args := append([]string{"clock", offset.String()}, strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")...)
	cmd := exec.Command(c.tool, args...)                               //nolint:noctx // back ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a killed test cleans nothing up
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(err, kwok.Start(ctx))
	}
	return names, func(ctx context.Context) error {
		_, _ = cmd.Process.Kill(), cmd.Wait()
		var errs []error
		for _, name := range names { // kwok does not take a Lease that another one seems to hold for an hour
			errs = append(errs, c.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, name, metav1.DeleteOptions{}))
		}
		return errors.Join(append(errs, kwok.supervisor.Kill(ctx, controllers), kwok.Start(ctx))...)
	}, nil
}
