// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// supervision is the configuration of a cluster's supervisor, in
// Layout.ProgramsFile.
type supervision struct {
	Programs    []process.Spec `json:"programs"`
	Projections []Projection   `json:"projections"`
	// AgentNodes maps each agent's program to the node that the agent is assumed
	// to run on.
	AgentNodes map[string]string `json:"agentNodes,omitempty"`
	// Kubeconfig is used to request the projected tokens and to write nodes' conditions.
	Kubeconfig string `json:"kubeconfig"`
}

// Supervise runs the programs of the cluster with this state directory until ctx
// ends or a client requests shutdown over the socket. It implements the hidden
// command "fairlead internal supervise".
func Supervise(ctx context.Context, dir string) error {
	l, err := NewLayout(filepath.Dir(dir), filepath.Base(dir))
	if err != nil {
		return err
	}
	var todo supervision
	if err := cluster.ReadJSON(l.ProgramsFile(), &todo); err != nil {
		return fmt.Errorf("supervising cluster %q: %w", l.Name, err)
	}
	supervisor, err := process.New(l.Dir, todo.Programs)
	if err != nil {
		return err
	}
	listener, err := listenAlone(ctx, l.SupervisorSocket())
	if err != nil {
		return err
	}
	ctx, shutdown := context.WithCancel(ctx)
	defer shutdown()

	// The socket goes on answering while the programs are being stopped.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() {
		if err := process.Serve(serving, listener, supervisor, shutdown); err != nil {
			klog.FromContext(ctx).Error(err, "Supervisor socket failed")
			shutdown()
		}
	})
	all.Go(func() { projector{kubeconfig: todo.Kubeconfig, list: todo.Projections}.run(ctx) })
	all.Go(func() { keepTunnelConditions(ctx, supervisor, todo) })
	all.Go(func() { trimLogs(ctx, l.LogDir()) })
	supervisor.Run(ctx)
	stopServing()
	all.Wait()
	return nil
}

// listenAlone listens on a Unix socket for this user only. If no process listens
// on an existing socket file, a killed supervisor has left it, and listenAlone
// replaces it.
func listenAlone(ctx context.Context, path string) (net.Listener, error) {
	if conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("another supervisor answers on %s", path)
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("removing the stale socket: %w", err)
	}
	old := unix.Umask(0o177)
	defer unix.Umask(old)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening for commands: %w", err)
	}
	return listener, nil
}

// maxLog is the size at which a log is rotated; one older part is kept.
const maxLog = 64 << 20

// trimLogs keeps a cluster that runs for weeks from filling the disk. Programs
// hold their log open for appending, so trimLogs copies the file and truncates
// it in place.
func trimLogs(ctx context.Context, dir string) {
	for {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || info.Size() < maxLog || filepath.Ext(e.Name()) != ".log" {
				continue
			}
			path := filepath.Join(dir, e.Name())
			if err := cutLog(path); err != nil {
				klog.FromContext(ctx).Error(err, "Could not truncate log", "file", path)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(30 * time.Second):
		}
	}
}

func cutLog(path string) error {
	kept := copyFile(path, path+".1")
	// Truncate even if the disk has no space for the copy: then it matters most.
	return errors.Join(kept, os.Truncate(path, 0))
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// startSupervisor starts the supervisor in a session of its own, so that it
// outlives this command and its terminal.
func (p *plan) startSupervisor(ctx context.Context) error {
	log, err := os.OpenFile(p.Log("supervisor"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the supervisor's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(p.bins["fairlead"], "internal", "supervise", p.Dir) //nolint:noctx // it outlives this command
	cmd.Env = append(os.Environ(), process.MarkEnv+"="+p.Dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	keepOpenFiles()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the supervisor: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	client := process.NewClient(p.SupervisorSocket())
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, fmt.Errorf("the supervisor does not answer; see %s", p.Log("supervisor")))
	defer cancel()
	return poll(ctx, 20*time.Millisecond, func() (bool, error) {
		select {
		case err := <-ended:
			return false, errors.Join(fmt.Errorf("the supervisor ended at once; see %s", p.Log("supervisor")), err)
		default:
		}
		_, err := client.Status(ctx)
		return err == nil, nil
	})
}
