// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/e2e/offline/dockerd/runtime"
)

// DefaultDir is the default of Options.Dir.
const DefaultDir = "/var/lib/fairlead-docker"

// Options say where the daemon keeps its files and where it reports its progress.
type Options struct {
	// Dir holds everything of the daemon. Default: DefaultDir.
	Dir string
	// Always starts a daemon even though another one answers.
	Always bool
	// Log gets one line per step. Default: none.
	Log io.Writer
	// Timeout bounds the wait until the daemon answers. Default: a minute.
	Timeout time.Duration
}

// Found is a daemon that answers.
type Found struct {
	// Host is the value for DOCKER_HOST; empty if none is needed.
	Host string
	// Version is what the daemon says of itself.
	Version string
	// Started says that this call started it.
	Started bool
}

// Errors that this package cannot resolve itself.
var (
	ErrNotInstalled = errors.New("docker is not installed")
	ErrNotRoot      = errors.New("only root can start a Docker daemon")
	ErrNoAnswer     = errors.New("the Docker daemon does not answer")
)

// maxSocketPath is what fits into struct sockaddr_un.
const maxSocketPath = 107

func (o Options) complete() (Options, error) {
	if o.Dir == "" {
		o.Dir = DefaultDir
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, err
	}
	o.Dir = dir
	if socket := o.path("exec/containerd/containerd-debug.sock"); len(socket) > maxSocketPath {
		return o, fmt.Errorf("%s: too long for a Unix socket (%d bytes, at most %d): choose a shorter -dir", socket, len(socket), maxSocketPath)
	}
	return o, nil
}

func (o Options) path(name string) string { return filepath.Join(o.Dir, name) }
func (o Options) host() string            { return "unix://" + o.path("docker.sock") }
func (o Options) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(o.Log, format+"\n", args...)
}

// Start returns the daemon that answers, DOCKER_HOST's or the default one, or else starts one and waits for it.
func Start(ctx context.Context, o Options) (Found, error) {
	o, err := o.complete()
	if err != nil {
		return Found{}, err
	}
	if version, err := ping(ctx, o.host()); err == nil {
		o.logf("The private Docker daemon in %s runs already (%s).", o.Dir, version)
		return Found{Host: o.host(), Version: version}, nil
	}
	if found, err := o.other(ctx); err != nil || found.Version != "" {
		return found, err
	}
	if os.Geteuid() != 0 {
		return Found{}, fmt.Errorf("%w: run it with sudo, or start your own and set DOCKER_HOST", ErrNotRoot)
	}
	if err := o.install(ctx); err != nil {
		return Found{}, err
	}
	if err := os.MkdirAll(o.Dir, 0o711); err != nil {
		return Found{}, fmt.Errorf("the daemon's directory: %w", err)
	}
	unlock, err := o.lock(ctx)
	if err != nil {
		return Found{}, err
	}
	defer unlock()
	if version, err := ping(ctx, o.host()); err == nil { // another one started it meanwhile
		return Found{Host: o.host(), Version: version}, nil
	}
	if pid := o.pid(); pid != 0 {
		return o.await(ctx, pid)
	}
	return o.spawn(ctx)
}

// await waits for our daemon, which runs and has not answered. A second daemon would fail because of the first one's
// pidfile, and its exit would stop the first one's containers.
func (o Options) await(ctx context.Context, pid int) (Found, error) {
	o.logf("dockerd (process %d) runs and does not answer: waiting for it.", pid)
	version, err := o.wait(ctx, nil)
	if err != nil {
		return Found{}, fmt.Errorf("process %d: %w\nit was left alone: `go -C e2e/offline run ./dockerd stop -dir %s` ends it with its containers", pid, err, o.Dir)
	}
	return Found{Host: o.host(), Version: version}, nil
}

// other looks for a daemon that is not ours.
func (o Options) other(ctx context.Context) (Found, error) {
	host := os.Getenv("DOCKER_HOST")
	if o.Always || host == o.host() {
		return Found{}, nil
	}
	version, err := ping(ctx, host)
	if err == nil {
		o.logf("Docker answers already (%s, %s): no daemon is started.", version, nonEmpty(host, "the default socket"))
		return Found{Host: host, Version: version}, nil
	}
	if host != "" && !errors.Is(err, exec.ErrNotFound) {
		return Found{}, fmt.Errorf("%w at %s, which DOCKER_HOST names: start it, or unset DOCKER_HOST: %w", ErrNoAnswer, host, err)
	}
	return Found{}, nil
}

func (o Options) spawn(ctx context.Context) (Found, error) {
	args, err := o.args()
	if err != nil {
		return Found{}, err
	}
	log, err := os.OpenFile(o.path("dockerd.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return Found{}, err
	}
	defer func() { _ = log.Close() }()
	began := time.Now()
	//nolint:noctx // the daemon outlives this program
	cmd := exec.Command("dockerd", args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no hang-up when the terminal closes
	cmd.Env = environ("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin")
	if err := cmd.Start(); err != nil {
		return Found{}, fmt.Errorf("starting dockerd: %w", err)
	}
	exited := make(chan string, 1)
	go func() { _ = cmd.Wait(); exited <- cmd.ProcessState.String() }()
	version, err := o.wait(ctx, exited)
	if err != nil {
		return Found{}, errors.Join(err, o.kill(context.WithoutCancel(ctx), cmd.Process.Pid))
	}
	o.logf("Started a private Docker daemon in %s (%s, %.1fs).", o.Dir, version, time.Since(began).Seconds())
	return Found{Host: o.host(), Version: version, Started: true}, nil
}

// args of dockerd. Its containerd is a child of it, below the exec root.
func (o Options) args() ([]string, error) {
	args := []string{
		"--host", o.host(),
		"--data-root", o.path("data"),
		"--exec-root", o.path("exec"),
		"--pidfile", o.path("docker.pid"),
		"--config-file", o.path("daemon.json"),
		// Where a containerd of the system runs, dockerd uses that one.
		"--containerd-namespace", "fairlead", "--containerd-plugins-namespace", "fairlead-plugins",
	}
	if err := os.WriteFile(o.path("daemon.json"), []byte("{}\n"), 0o600); err != nil { // not the machine's /etc/docker/daemon.json
		return nil, err
	}
	needed, err := runtime.Needed()
	if err != nil || !needed {
		return args, err
	}
	wrapper := o.path(runtime.Name)
	if err := copySelf(wrapper); err != nil {
		return nil, fmt.Errorf("the runtime wrapper: %w", err)
	}
	o.logf("CAP_SYS_RESOURCE is missing here: containers start through %s.", wrapper)
	return append(args, "--add-runtime", runtime.Name+"="+wrapper, "--default-runtime", runtime.Name), nil
}

// wait until the daemon answers, ends, or takes too long.
func (o Options) wait(ctx context.Context, exited <-chan string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	for {
		if version, err := ping(ctx, o.host()); err == nil {
			return version, nil
		}
		select {
		case how := <-exited:
			return "", fmt.Errorf("%w: dockerd ended at once (%s): %s", ErrNoAnswer, how, o.diagnosis())
		case <-ctx.Done():
			return "", fmt.Errorf("%w after %v (%w): %s", ErrNoAnswer, o.Timeout, context.Cause(ctx), o.diagnosis())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ping asks the daemon at host, or the one of the docker command's own choice, for its version.
func ping(ctx context.Context, host string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}")
	cmd.WaitDelay = time.Second
	if host != "" {
		cmd.Env = environ("DOCKER_HOST", host)
	}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

// environ is this process's environment with one variable replaced.
func environ(name, value string) []string { return append(os.Environ(), name+"="+value) }

func nonEmpty(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// copySelf puts this program at path, in one step: the old one may be running.
func copySelf(path string) (err error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer func() { _ = self.Close() }()
	tmp, err := os.CreateTemp(filepath.Dir(path), ".wrapper-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = io.Copy(tmp, self)
	if err == nil {
		err = tmp.Chmod(0o755)
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
