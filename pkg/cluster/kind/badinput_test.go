package kind

import (
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

// A docker that answers, whose only image is node:v1 with the Kubernetes given.
const answeringDocker = `case "$1 $2" in
"info "*) echo /nonexistent ;;
"ps "*)
  case "$*" in *.Names*) echo "$CONTAINERS" ;; *) echo "$CLUSTERS" ;; esac ;;
"image inspect") [ "$4" = node:v1 ] ;;
"pull "*) echo "dial tcp: lookup registry: no such host" >&2; exit 1 ;;
"run "*)
  [ -z "$BROKEN" ] || { echo "exec format error" >&2; exit 1; }
  echo "version $KUBERNETES"; echo cni; echo "caps 000001ffffffffff" ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac
`

// Every bad input ends with a line that says what is wrong and what to do, and
// leaves nothing behind.
func TestBadInput(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	busyPort := taken.Addr().(*net.TCPAddr).Port
	for name, c := range map[string]struct {
		docker   string
		env      map[string]string
		settings Settings
		options  cluster.UpOptions
		is       error
		says     []string
	}{
		"no runtime": {
			is: ErrNoRuntime, says: []string{"docker, nerdctl nor podman", "--provider embedded"},
		},
		"unknown runtime": {
			env: map[string]string{runtimeVariable: "lxc"}, is: ErrNoRuntime, says: []string{"lxc", "docker, podman or nerdctl"},
		},
		"runtime of the environment is not installed": {
			docker: answeringDocker, env: map[string]string{runtimeVariable: "podman"}, is: ErrNoRuntime, says: []string{"podman", "not in PATH"},
		},
		"daemon is not there": {
			docker: `echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?" >&2; exit 1`,
			is:     ErrRuntimeDown, says: []string{"unix:///var/run/docker.sock", "systemctl start docker", "DOCKER_HOST", "--provider embedded"},
		},
		"not allowed": {
			docker: `echo "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock" >&2; exit 1`,
			is:     ErrRuntimeDenied, says: []string{"usermod -aG docker", "--provider embedded"},
		},
		"no image by default": {
			docker: answeringDocker, is: ErrNoImage, says: []string{"make node-image", "--image", "no such host"},
		},
		"no image of that name": {
			docker: answeringDocker, settings: Settings{Image: "node:v2"}, is: ErrNoImage, says: []string{"node:v2", "check the name"},
		},
		"no node image": {
			docker: answeringDocker, settings: Settings{Image: "node:v1"}, is: ErrImage, says: []string{"/kind/version", "--image"},
		},
		"too old": {
			docker: answeringDocker, env: map[string]string{"KUBERNETES": "v1.35.4"}, settings: Settings{Image: "node:v1"},
			is: ErrImage, says: []string{"v1.35.4", "too old", "1.36 and 1.37", "--image"},
		},
		"too new": {
			docker: answeringDocker, env: map[string]string{"KUBERNETES": "v1.38.0"}, settings: Settings{Image: "node:v1"},
			is: ErrImage, says: []string{"v1.38.0", "too new", "1.36 and 1.37"},
		},
		"name taken": {
			docker: answeringDocker, env: map[string]string{"CLUSTERS": "fairlead-dev"}, is: ErrNameTaken, says: []string{"kind delete cluster --name fairlead-dev", "another --name"},
		},
		"a node's name taken by another container": {
			docker: answeringDocker, env: map[string]string{"CONTAINERS": "x\nfairlead-dev-worker2"}, settings: Settings{Image: "node:v1"},
			is: ErrNameTaken, says: []string{"container fairlead-dev-worker2 exists", "docker rm fairlead-dev-worker2", "another --name"},
		},
		"no version": {
			docker: answeringDocker, env: map[string]string{"KUBERNETES": "latest"}, settings: Settings{Image: "node:v1"},
			is: ErrImage, says: []string{"node:v1", "/kind/version", "latest"},
		},
		"an image of another machine": {
			docker: answeringDocker, env: map[string]string{"BROKEN": "1"}, settings: Settings{Image: "node:v1"},
			is: ErrImage, says: []string{"node:v1", "exec format error", "another --image"},
		},
		"port taken": {
			docker: answeringDocker, options: cluster.UpOptions{APIServerPort: busyPort}, is: cluster.ErrPortInUse, says: []string{"--api-server-port", "ss -ltnp"},
		},
		"two control planes": {
			docker: answeringDocker, settings: Settings{ControlPlanes: 2}, is: ErrOptions, says: []string{"--control-planes 2", "1 or 3"},
		},
		"three control planes without a worker": {
			docker: answeringDocker, settings: Settings{ControlPlanes: 3, Workers: ptr.To(0)}, is: ErrOptions, says: []string{"at least one worker"},
		},
		"workers": {
			docker: answeringDocker, settings: Settings{Workers: ptr.To(1000)}, is: ErrOptions, says: []string{"--workers 1000", "50"},
		},
		"long name": {
			docker: answeringDocker, options: cluster.UpOptions{Name: strings.Repeat("a", 39)}, is: ErrOptions, says: []string{"39 characters", "at most 38"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fakeRuntime(t, c.docker)
			if c.docker == "" {
				t.Setenv("PATH", t.TempDir())
			}
			for key, value := range c.env {
				t.Setenv(key, value)
			}
			state := t.TempDir()
			c.options.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
			if c.options.Name == "" {
				c.options.Name = "dev"
			}
			err := NewProvider(filepath.Join(state, "clusters"), c.settings).Up(t.Context(), c.options)
			if !errors.Is(err, c.is) {
				t.Errorf("Up = %v, want %v", err, c.is)
			}
			for _, text := range c.says {
				if err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("the error lacks %q: %v", text, err)
				}
			}
			left, _ := filepath.Glob(filepath.Join(state, "clusters", "*"))
			if _, err := os.Stat(c.options.Kubeconfig); len(left) > 0 || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("left behind: %v (kubeconfig: %v)", left, err)
			}
		})
	}
}

// An interrupt before anything is made says just that.
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

// A full disk of the container runtime is found before nodes fill it.
func TestNoRoomForNodes(t *testing.T) {
	fakeRuntime(t, `case "$1" in
info) echo /tmp ;;
image) echo 9000000000000000 ;;
esac
`)
	rt, err := findRuntime()
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.checkRoom(t.Context(), "node:v1", 3); !errors.Is(err, cluster.ErrNoSpace) || !strings.Contains(err.Error(), "3 nodes") {
		t.Errorf("checkRoom = %v, want ErrNoSpace", err)
	}
}

// A node that systemd gave up on says why in its log; the user hears it.
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
