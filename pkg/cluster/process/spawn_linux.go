// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// MarkEnv is the environment variable by which [FindMarked] recognizes the
// processes of one supervisor, also after the supervisor itself was killed.
const MarkEnv = "FAIRLEAD_CLUSTER_DIR"

// spawner starts children from one operating-system thread that lives as long
// as the process: the kernel sends a child its parent-death signal when the
// thread that started it ends, not when the process does.
type spawner struct {
	requests chan func()
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range s.requests {
			f()
		}
	}()
	return s
}

// start runs cmd in a process group of its own. The kernel kills it when the
// supervisor ends.
func (s *spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	done := make(chan error)
	s.requests <- func() { done <- cmd.Start() }
	return <-done
}

func (s *spawner) close() { close(s.requests) }

// command prepares the process of a spec. It inherits only the variables that
// programs need to find their files, so that a proxy or a KUBECONFIG of the
// user's shell does not reach the control plane.
func command(spec Spec, mark string) *exec.Cmd {
	cmd := exec.Command(spec.Path, spec.Args...) //nolint:noctx // the supervisor stops it in order, not a context
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG", "USER"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.Env = append(cmd.Env, MarkEnv+"="+mark)
	cmd.Env = append(cmd.Env, spec.Env...)
	return cmd
}
