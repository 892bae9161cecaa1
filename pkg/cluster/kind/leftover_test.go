// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// inspected is the part of "container inspect" that all runtimes have: Docker
// puts a slash before the name, and old nerdctl has the ports elsewhere.
func inspected(command, name string, running bool, mount, port string) string {
	if command == "docker" {
		name = "/" + name
	}
	published := fmt.Sprintf(`{"6443/tcp": [{"HostIp": "127.0.0.1", "HostPort": %q}]}`, port)
	host, network := published, "{}"
	if command == "nerdctl" {
		host, network = "null", published
	}
	return fmt.Sprintf(`{"Name": %q, "State": {"Running": %v}, "Mounts": [{"Type": "volume", "Source": "/var/lib/x"}, {"Type": "bind", "Source": %q}],
 "HostConfig": {"PortBindings": %s}, "NetworkSettings": {"Ports": %s, "Networks": {"kind": {"IPAddress": "172.18.0.3", "GlobalIPv6Address": "fc00::3"}}}}`, name, running, mount, host, network)
}

// Containers that another program created are not taken for ours.
func TestOurs(t *testing.T) {
	everyRuntime(t, func(t *testing.T, command string) {
		list, err := parseContainers("[" + inspected(command, "fairlead-dev-worker", true, "/state/dev/nodes/fairlead-dev-worker", "20000") + "]")
		if err != nil || len(list) != 1 || list[0].name != "fairlead-dev-worker" || !list[0].running {
			t.Fatalf("%+v, %v", list, err)
		}
		balancer, err := parseContainers("[" + inspected(command, "fairlead-dev-external-load-balancer", false, "/var/lib/y", "20000") + "]")
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			list          []container
			dir           string
			controlPlanes int
			port          int
			want          bool
		}{
			"a node":                              {list, "/state/dev", 1, 20000, true},
			"its directory's name begins alike":   {list, "/state/de", 1, 20000, false},
			"another state directory's, our port": {list, "/other/dev", 3, 20000, false},
			"the load balancer alone":             {balancer, "/state/dev", 3, 20000, true},
			"one with another port":               {balancer, "/state/dev", 3, 20001, false},
			"one, and we have none":               {balancer, "/state/dev", 1, 20000, false},
			"one beside another's node":           {append(balancer, list...), "/other/dev", 3, 20000, false},
			"one beside our node":                 {append(balancer, list...), "/state/dev", 3, 20000, true},
		} {
			p := &plan{Home: cluster.Home{Name: "dev", Dir: c.dir}, state: State{ControlPlanes: c.controlPlanes, Port: c.port}}
			if got := p.ours(c.list); got != c.want {
				t.Errorf("%s: ours = %v", name, got)
			}
		}
	})
}

// A runtime that has one container, $CONTAINER, until it is removed.
const oneContainer = `gone="$(dirname "$0")/gone"
case "$1 $2" in
"--version ") echo "podman version 4.3.1" ;;
"ps "*) [ -e "$gone" ] || echo "$CONTAINER" ;;
"container inspect") [ "$3" = "$CONTAINER" ] && echo "$INSPECTED" ;;
"inspect "*) echo external-load-balancer ;;
"rm "*) : >"$gone" ;;
esac
`

// storedCluster is a cluster of three control plane nodes as `up` leaves it, as
// far as files are concerned.
func storedCluster(t *testing.T, command string) *plan {
	t.Helper()
	p := newTestPlan(t, "")
	p.state.Record = cluster.NewRecord("dev")
	p.state.Phase, p.state.KubernetesVersion, p.state.Runtime = cluster.PhaseReady, "v1.36.3", command
	if err := p.Claim(cluster.Kind); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(p.ConfigDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Save(), p.StoreBundle(p.bundle)); err != nil {
		t.Fatal(err)
	}
	return p
}

// The nodes of a cluster were removed by hand, but not the load balancer, which
// only its port identifies. `up` and `status` say what is missing, and `down`
// removes the rest.
func TestOnlyLoadBalancerLeft(t *testing.T) {
	everyRuntime(t, func(t *testing.T, command string) {
		fakeCommand(t, command, oneContainer)
		t.Setenv("PATH", os.Getenv("PATH")+":/usr/bin:/bin")
		const name = "fairlead-dev-external-load-balancer"
		t.Setenv("CONTAINER", name)
		t.Setenv("INSPECTED", "["+inspected(command, name, false, "/var/lib/x", "20000")+"]")
		p := storedCluster(t, command)
		provider := NewProvider(filepath.Dir(p.Dir), Settings{})
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")

		err := provider.Up(t.Context(), cluster.UpOptions{Name: "dev", Kubeconfig: kubeconfig})
		if !errors.Is(err, ErrNodesMissing) || !strings.Contains(err.Error(), "fairlead-dev-control-plane3") || !strings.Contains(err.Error(), "fairlead down --name dev") {
			t.Errorf("Up = %v, want ErrNodesMissing", err)
		}
		s, err := provider.Status(t.Context(), "dev")
		if err != nil || !strings.Contains(s.Problem(), "0 of 5 nodes") {
			t.Errorf("Status = %v, %v", s, err)
		}
		if err := provider.Down(t.Context(), cluster.DownOptions{Name: "dev", Kubeconfig: kubeconfig}); err != nil {
			t.Fatal(err)
		}
		path, _, _ := strings.Cut(os.Getenv("PATH"), ":")
		if _, err := os.Stat(filepath.Join(path, "gone")); err != nil {
			t.Errorf("the load balancer is left: %v", err)
		}
		if _, err := os.Stat(p.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", p.Dir, err)
		}
	})
}

// The load balancer of another cluster of the same name stays.
func TestAnothersLoadBalancerStays(t *testing.T) {
	fakeCommand(t, "docker", oneContainer)
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/bin:/bin")
	const name = "fairlead-dev-external-load-balancer"
	t.Setenv("CONTAINER", name)
	t.Setenv("INSPECTED", "["+inspected("docker", name, true, "/var/lib/x", "20001")+"]")
	p := storedCluster(t, "docker")
	if err := NewProvider(filepath.Dir(p.Dir), Settings{}).Down(t.Context(), cluster.DownOptions{Name: "dev", Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}); err != nil {
		t.Fatal(err)
	}
	path, _, _ := strings.Cut(os.Getenv("PATH"), ":")
	if _, err := os.Stat(filepath.Join(path, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the load balancer of another cluster was removed: %v", err)
	}
}

// Without the load balancer the API servers are unreachable.
func TestLoadBalancerMissing(t *testing.T) {
	fakeRuntime(t, `case "$1 $2" in
"ps "*) for n in control-plane control-plane2 control-plane3 worker worker2; do echo "fairlead-dev-$n"; done ;;
"container inspect") echo "$INSPECTED" ;;
esac
`)
	p := storedCluster(t, "docker")
	var all []string
	for _, n := range p.nodes() {
		all = append(all, inspected("docker", n.name, false, p.nodeDir(n), ""))
	}
	t.Setenv("INSPECTED", "["+strings.Join(all, ",")+"]")
	provider := NewProvider(filepath.Dir(p.Dir), Settings{})
	err := provider.Up(t.Context(), cluster.UpOptions{Name: "dev", Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")})
	if !errors.Is(err, ErrNodesMissing) || !strings.Contains(err.Error(), "fairlead-dev-external-load-balancer") {
		t.Errorf("Up = %v, want ErrNodesMissing", err)
	}
	s, err := provider.Status(t.Context(), "dev")
	if err != nil || !strings.Contains(s.Problem(), "load balancer") {
		t.Errorf("Status = %v, %v", s, err)
	}
}
