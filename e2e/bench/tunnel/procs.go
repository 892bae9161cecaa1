// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"

	"github.com/fairlead-dev/fairlead/e2e/bench/internal/certs"
)

// proc is a child process.
type proc struct {
	cmd  *exec.Cmd
	name string
	done chan struct{}
}

// start runs a program with further variables in its environment.
func start(name, log string, env []string, args ...string) (*proc, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	p := &proc{cmd: exec.CommandContext(context.Background(), args[0], args[1:]...), name: name, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = p.cmd.Wait(); f.Close(); close(p.done) }()
	return p, nil
}

func (p *proc) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Kill()
	<-p.done
}

// cpu is the CPU time in seconds that a process has used.
func cpu(pid int) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 13 {
		return 0
	}
	u, _ := strconv.ParseFloat(f[11], 64)
	k, _ := strconv.ParseFloat(f[12], 64)
	return (u + k) / 100
}

// rss is the resident memory of a process in MB.
func rss(pid int) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseFloat(f[1], 64)
	return n * float64(os.Getpagesize()) / 1e6
}

func fds(pid int) float64 {
	d, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return -1
	}
	return float64(len(d))
}

// gauge reads a metric without labels from a /metrics address.
func gauge(port int, name string) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", port), http.NoBody)
	if err != nil {
		return -1
	}
	req.Close = true // descriptors are counted, too
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		if f := strings.Fields(sc.Text()); len(f) == 2 && f[0] == name {
			v, _ := strconv.ParseFloat(f[1], 64)
			return v
		}
	}
	return -1
}

// rig is a server and its agents, running.
type rig struct {
	pair   pair
	mode   string
	dir    string
	socket string
	server *proc
	agents []*proc
	ports  struct{ agent, admin, health int }
	admins []int // of the agents
	via    route
}

// pair names the programs that are measured together.
type pair struct {
	name, server, agent string
	first               bool // with real-time priority
}

// command starts one of the programs.
func (p pair) command(program string) []string {
	if p.first {
		return []string{"/proc/self/exe", "first", program}
	}
	return []string{program}
}

func freePort() int {
	for {
		l, err := listen()
		if err != nil {
			continue
		}
		p := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if p < 49151 {
			return p
		}
	}
}

func startRig(p pair, mode string, agents int, extra ...string) (*rig, error) {
	dir, err := os.MkdirTemp("", "bt")
	if err != nil {
		return nil, err
	}
	if err := certs.Write(dir); err != nil {
		return nil, err
	}
	r := &rig{pair: p, mode: mode, dir: dir, socket: filepath.Join(dir, "s")}
	r.ports.agent, r.ports.admin, r.ports.health = freePort(), freePort(), freePort()
	args := append(p.command(p.server), "--mode="+mode, "--uds-name="+r.socket, "--server-port=0",
		"--cluster-cert="+dir+"/crt", "--cluster-key="+dir+"/key", "--cluster-ca-cert="+dir+"/ca",
		"--agent-port="+strconv.Itoa(r.ports.agent), "--agent-bind-address=127.0.0.1",
		"--admin-port="+strconv.Itoa(r.ports.admin), "--health-port="+strconv.Itoa(r.ports.health), "--health-bind-address=127.0.0.1",
		"--v=0", "--logtostderr=true", "--enable-profiling")
	args = append(args, extra...)
	if r.server, err = start("server", dir+"/server.log", nil, args...); err != nil {
		return nil, err
	}
	for i := range agents {
		if err := r.addAgent(i); err != nil {
			r.stop()
			return nil, err
		}
	}
	r.via = route{mode, r.socket}
	return r, r.waitAgents(agents)
}

func (r *rig) addAgent(i int) error {
	admin := freePort()
	args := append(r.pair.command(r.pair.agent), "--proxy-server-host=127.0.0.1", "--proxy-server-port="+strconv.Itoa(r.ports.agent),
		"--ca-cert="+r.dir+"/ca", "--agent-cert="+r.dir+"/crt", "--agent-key="+r.dir+"/key",
		"--agent-identifiers=ipv4=127.0.0.1",
		"--health-server-host=127.0.0.1", "--health-server-port="+strconv.Itoa(freePort()),
		"--admin-server-port="+strconv.Itoa(admin), "--v=0", "--logtostderr=true", "--enable-profiling")
	// The upstream agent has neither a flag nor a variable for the grace period.
	env := []string{settings.DrainTimeout + "=" + grace.String()}
	a, err := start("agent", fmt.Sprintf("%s/agent%d.log", r.dir, i), env, args...)
	if err == nil {
		r.agents, r.admins = append(r.agents, a), append(r.admins, admin)
	}
	return err
}

// goroutines is the number of those of the server and its agents.
func (r *rig) goroutines() float64 {
	sum := gauge(r.ports.health, goroutinesMetric)
	for _, port := range r.admins {
		sum += gauge(port, goroutinesMetric)
	}
	return sum
}

const goroutinesMetric = "go_goroutines"

func (r *rig) waitAgents(n int) error {
	for range 200 {
		if gauge(r.ports.health, "konnectivity_network_proxy_server_ready_backend_connections") >= float64(n) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	log, _ := os.ReadFile(r.dir + "/server.log")
	alog, _ := os.ReadFile(r.dir + "/agent0.log")
	r.stop()
	return fmt.Errorf("agents did not connect:\n%s\n%s", log, alog)
}

func (r *rig) stop() {
	for _, a := range r.agents {
		a.kill()
	}
	if r.server != nil {
		r.server.kill()
	}
	_ = os.RemoveAll(r.dir)
}

// cpu is the CPU time in seconds of server and agent, children included.
func (r *rig) cpu() (server, agent float64) {
	server = cpuTree(r.serverPID())
	if len(r.agents) > 0 {
		agent = cpuTree(r.agentPID())
	}
	return server, agent
}

// cpuTree is the CPU time in seconds of a process and its children.
func cpuTree(pid int) float64 { return tree(pid, cpu) }

// tree is the sum of what is measured of a process and its children: sshd has some.
func tree(pid int, measure func(pid int) float64) float64 {
	sum := measure(pid)
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, f := range strings.Fields(string(b)) {
		if child, err := strconv.Atoi(f); err == nil {
			sum += tree(child, measure)
		}
	}
	return sum
}

// rss is the memory in MB of server and agent, children included.
func (r *rig) rss() (server, agent float64) { return tree(r.serverPID(), rss), tree(r.agentPID(), rss) }

// fds is the number of descriptors of server and agent, children included.
func (r *rig) fds() float64 { return tree(r.serverPID(), fds) + tree(r.agentPID(), fds) }

func (r *rig) serverPID() int { return r.server.cmd.Process.Pid }
func (r *rig) agentPID() int  { return r.agents[0].cmd.Process.Pid }
