// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// A runtime that answers, whose only image is node:v1 with the given Kubernetes
// version. Podman knows it only by its full name.
const answering = `case "$1 $2" in
"info "*) echo /nonexistent ;;
"--version ") echo "podman version 4.3.1" ;;
"ps "*)
  case "$*" in *.Names*) echo "$CONTAINERS" ;; *) echo "$CLUSTERS" ;; esac ;;
"image inspect") [ "$4" = "$IMAGE" ] ;;
"pull "*) echo "dial tcp: lookup registry: no such host" >&2; exit 1 ;;
"run "*)
  [ -z "$BROKEN" ] || { echo "$BROKEN" >&2; exit 1; }
  echo "version $KUBERNETES"; echo cni; echo "caps 000001ffffffffff" ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac
`

// badInput is what Up gets, and the error that it returns.
type badInput struct {
	runtime  string
	env      map[string]string
	settings Settings
	options  cluster.UpOptions
	is       error
	says     []string
	busy     bool // the API server's port is in use
}

var badInputs = map[string]badInput{
	"no runtime": {
		is: ErrNoRuntime, says: []string{"docker, nerdctl nor podman", "--provider embedded"},
	},
	"unknown runtime": {
		env: map[string]string{runtimeVariable: "lxc"}, is: ErrNoRuntime, says: []string{"lxc", "docker, podman or nerdctl"},
	},
	"runtime of the environment is not installed": {
		runtime: answering, env: map[string]string{runtimeVariable: "finch"}, is: ErrNoRuntime, says: []string{"finch", "not in PATH"},
	},
	"daemon is not there": {
		runtime: `echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?" >&2; exit 1`,
		is:      ErrRuntimeDown, says: []string{"unix:///var/run/docker.sock", "--provider embedded"},
	},
	"not allowed": {
		runtime: `echo "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock" >&2; exit 1`,
		is:      ErrRuntimeDenied, says: []string{"permission denied", "--provider embedded"},
	},
	"no image by default": {
		runtime: answering, is: ErrNoImage, says: []string{"make node-image", "--image", "no such host"},
	},
	"no image of that name": {
		runtime: answering, settings: Settings{Image: "node:v2"}, is: ErrNoImage, says: []string{"node:v2", "check the name"},
	},
	"no node image": {
		runtime: answering, settings: Settings{Image: "node:v1"}, is: ErrImage, says: []string{"/kind/version", "--image"},
	},
	"too old": {
		runtime: answering, env: map[string]string{"KUBERNETES": "v1.35.4"}, settings: Settings{Image: "node:v1"},
		is: ErrImage, says: []string{"v1.35.4", "too old", "1.36 and 1.37", "--image"},
	},
	"too new": {
		runtime: answering, env: map[string]string{"KUBERNETES": "v1.38.0"}, settings: Settings{Image: "node:v1"},
		is: ErrImage, says: []string{"v1.38.0", "too new", "1.36 and 1.37"},
	},
	"name taken": {
		runtime: answering, env: map[string]string{"CLUSTERS": "fairlead-dev"}, is: ErrNameTaken, says: []string{"kind delete cluster --name fairlead-dev", "another --name"},
	},
	"a node's name taken by another container": {
		runtime: answering, env: map[string]string{"CONTAINERS": "x\nfairlead-dev-worker2"}, settings: Settings{Image: "node:v1"},
		is: ErrNameTaken, says: []string{"container fairlead-dev-worker2 exists", " rm --force fairlead-dev-worker2", "another --name"},
	},
	"no version": {
		runtime: answering, env: map[string]string{"KUBERNETES": "latest"}, settings: Settings{Image: "node:v1"},
		is: ErrImage, says: []string{"node:v1", "/kind/version", "latest"},
	},
	"an image of another machine": {
		runtime: answering, env: map[string]string{"BROKEN": "exec format error"}, settings: Settings{Image: "node:v1"},
		is: ErrImage, says: []string{"node:v1", "exec format error", "another --image"},
	},
	"a machine without all capabilities": {
		runtime: answering, env: map[string]string{"BROKEN": "OCI runtime create failed: unable to apply caps: operation not permitted"}, settings: Settings{Image: "node:v1"},
		is: ErrRuntimeDenied, says: []string{"unable to apply caps", "docs/node-image.md", "dockerd start"},
	},
	"no load balancer": {
		runtime: answering, env: map[string]string{"KUBERNETES": "v1.36.3"}, settings: Settings{Image: "node:v1", ControlPlanes: 3},
		is: ErrNoImage, says: []string{"envoyproxy/envoy:", "no such host", "make node-image", "--control-planes 1"},
	},
	"a release candidate, which kind takes for the version before": {
		runtime: answering, env: map[string]string{"KUBERNETES": "v1.36.0-rc.1"}, settings: Settings{Image: "node:v1"},
		is: ErrImage, says: []string{"v1.36.0-rc.1", "too old"},
	},
	"port taken": {
		runtime: answering, busy: true, is: cluster.ErrPortInUse, says: []string{"--api-server-port", "ss -ltnp"},
	},
	"two control planes": {
		runtime: answering, settings: Settings{ControlPlanes: 2}, is: ErrOptions, says: []string{"--control-planes 2", "1 or 3"},
	},
	"three control planes without a worker": {
		runtime: answering, settings: Settings{ControlPlanes: 3, Workers: ptr.To(0)}, is: ErrOptions, says: []string{"at least one worker"},
	},
	"workers": {
		runtime: answering, settings: Settings{Workers: ptr.To(1000)}, is: ErrOptions, says: []string{"--workers 1000", "50"},
	},
	"long name": {
		runtime: answering, options: cluster.UpOptions{Name: strings.Repeat("a", 39)}, is: ErrOptions, says: []string{"39 characters", "at most 38"},
	},
}

// Every bad input ends with a line that says what is wrong and what to do, and
// leaves nothing behind.
func TestBadInput(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	busyPort := taken.Addr().(*net.TCPAddr).Port
	for name, c := range badInputs {
		if c.busy {
			c.options.APIServerPort = busyPort
		}
		t.Run(name, func(t *testing.T) {
			everyRuntime(t, func(t *testing.T, command string) {
				fakeCommand(t, command, c.runtime)
				t.Setenv("IMAGE", "node:v1")
				if command == "podman" {
					t.Setenv("IMAGE", "docker.io/library/node:v1")
				}
				if c.runtime == "" {
					t.Setenv("PATH", t.TempDir())
				}
				for key, value := range c.env {
					t.Setenv(key, value)
				}
				refused(t, c.settings, c.options, c.is, c.says)
			})
		})
	}
}

// refused calls Up, which must fail and leave nothing behind.
func refused(t *testing.T, settings Settings, options cluster.UpOptions, is error, says []string) {
	t.Helper()
	state := t.TempDir()
	options.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	options.Name = cmp.Or(options.Name, "dev")
	err := NewProvider(filepath.Join(state, "clusters"), settings).Up(t.Context(), options)
	if !errors.Is(err, is) {
		t.Errorf("Up = %v, want %v", err, is)
	}
	for _, text := range says {
		if err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("the error lacks %q: %v", text, err)
		}
	}
	left, _ := filepath.Glob(filepath.Join(state, "clusters", "*"))
	if _, err := os.Stat(options.Kubeconfig); len(left) > 0 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v (kubeconfig: %v)", left, err)
	}
}

// The remedy for a runtime that does not answer depends on which runtime it is.
func TestRemedies(t *testing.T) {
	for command, says := range map[string][2]string{
		"docker": {"systemctl start docker", "usermod -aG docker"}, "podman": {"podman machine start", "set Podman up"}, "nerdctl": {"systemctl start containerd", "set containerd up"},
	} {
		fakeCommand(t, command, "echo \"$WRONG\" >&2; exit 1")
		for i, wrong := range []string{"cannot connect", "permission denied"} {
			t.Setenv("WRONG", wrong)
			rt := &runtime{command: command}
			if err := rt.ping(t.Context()); err == nil || !strings.Contains(err.Error(), says[i]) {
				t.Errorf("%s, %s: %v, want %q", command, wrong, err, says[i])
			}
		}
	}
}

// If docker is Podman under another name, kind must be configured for Podman.
func TestEmulatedDocker(t *testing.T) {
	fakeCommand(t, "docker", `[ "$1" = -v ] && echo "$VERSION"`)
	if err := os.WriteFile(filepath.Join(os.Getenv("PATH"), "podman"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{"podman version 4.3.1": "podman", "Docker version 20.10.24+dfsg1, build 297e128": "docker"} {
		t.Setenv("VERSION", version)
		if rt, err := findRuntime(t.Context()); err != nil || rt.command != want {
			t.Errorf("%s: found %+v, %v, want %s", version, rt, err, want)
		}
	}
}

// Podman is called with the same arguments as by kind's library.
func TestImageName(t *testing.T) {
	const sum = "@sha256:7416a61b42b1662ca6ca89f02028ac133a309a2a30ba309614e8ec94d976dc5a"
	for image, want := range map[string]string{
		"node": "docker.io/library/node:latest", "fairlead-dev/kind-node:v1.36.3": "docker.io/fairlead-dev/kind-node:v1.36.3",
		"kindest/node:v1.36.1" + sum: "docker.io/kindest/node" + sum, "localhost/node:v1": "localhost/node:v1",
		"registry.example:5000/node:v1": "registry.example:5000/node:v1", "Not An Image": "Not An Image",
	} {
		if got := (&runtime{command: "podman"}).imageName(image); got != want {
			t.Errorf("podman: %s is asked for as %s, want %s", image, got, want)
		}
		if got := (&runtime{command: "docker"}).imageName(image); got != image {
			t.Errorf("docker: %s is asked for as %s", image, got)
		}
	}
}

// After an interrupt before anything is created, the error says only that.
func TestInterruptedEarly(t *testing.T) {
	fakeRuntime(t, "exec sleep 60\n")
	t.Setenv("PATH", os.Getenv("PATH")+":/bin:/usr/bin")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := NewProvider(t.TempDir(), Settings{}).Up(ctx, cluster.UpOptions{Name: "dev", Kubeconfig: filepath.Join(t.TempDir(), "k")})
	if !errors.Is(err, cluster.ErrInterrupted) {
		t.Errorf("Up = %v, want ErrInterrupted", err)
	}
}

// A full disk of the container runtime is detected before nodes fill it.
func TestNoRoomForNodes(t *testing.T) {
	for command, field := range map[string]string{"docker": "DockerRootDir", "podman": "Store.GraphRoot"} {
		fakeCommand(t, command, `case "$1 $2" in
"info --format={{.`+field+`}}") echo /tmp ;;
"image inspect") echo 9000000000000000 ;;
esac
`)
		rt, err := findRuntime(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := rt.checkRoom(t.Context(), "node:v1", 3); !errors.Is(err, cluster.ErrNoSpace) || !strings.Contains(err.Error(), "3 nodes") {
			t.Errorf("%s: checkRoom = %v, want ErrNoSpace", command, err)
		}
	}
}

// If systemd fails in a node, the node's log has the reason, and the error shows
// it.
func TestOutOfInotify(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"fine": "Reached target Multi-User System", "bad": "Failed to create control group inotify object: Too many open files"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "serial.log"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if hint := outOfInotify(dir); !strings.Contains(hint, "bad could not start") || !strings.Contains(hint, "sysctl fs.inotify.max_user_instances=") {
		t.Errorf("hint %q", hint)
	}
	if hint := outOfInotify(filepath.Join(dir, "fine")); hint != "" {
		t.Errorf("hint without a reason: %q", hint)
	}
}
