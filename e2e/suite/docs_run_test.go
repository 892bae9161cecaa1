// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// pageRun is a page whose commands run.
type pageRun struct {
	docsPage
	reader          *reader
	path, dir, home string
	facts           map[string]string
	used            map[string]bool
	serving         []*exec.Cmd
}

// commandLimit is within what a command must end.
const commandLimit = time.Minute

// unused complains about entries of the lists that match no command.
func (p *pageRun) unused(t *testing.T) {
	t.Helper()
	complain := func(entry string) {
		if !p.used[entry] {
			t.Errorf("%q is listed and matches no command", entry)
		}
	}
	for _, entry := range p.serve {
		complain(entry)
	}
	for entry := range p.ends {
		complain(entry)
	}
	for _, r := range p.replace {
		complain(r[0])
	}
}

var fact = regexp.MustCompile(`\$(PORT|SUITE|FREE)_[A-Z0-9_]+`)

// replaced is a command with what this cluster has.
func (p *pageRun) replaced(command string) string {
	for _, r := range p.replace {
		expr := regexp.MustCompile(r[0])
		if expr.MatchString(command) {
			p.used[r[0]] = true
			command = expr.ReplaceAllString(command, r[1])
		}
	}
	return fact.ReplaceAllStringFunc(command, func(name string) string { return p.facts[name[1:]] })
}

// prepare makes the directory, the home and the namespace of the page, and runs function prepare of its file in testdata/docs; function cleanup is
// for its end. A page's kubeconfig is a copy, so that commands may change it.
func (p *pageRun) prepare(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	p.dir, p.home, p.facts = t.TempDir(), t.TempDir(), facts(ctx, t)
	p.sudo(t)
	config, err := clientcmd.LoadFromFile(suite.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	namespace := "docs-" + strings.ToLower(name)
	config.Contexts[config.CurrentContext].Namespace = namespace
	if err := clientcmd.WriteToFile(*config, filepath.Join(p.home, ".kube/config")); err != nil {
		t.Fatal(err)
	}
	atEnd(ctx, t, func(ctx context.Context) { p.must(ctx, t, "kubectl delete namespace --wait=false "+namespace) })
	own, err := filepath.Abs(filepath.Join("testdata/docs", name+".sh"))
	if err != nil {
		t.Fatal(err)
	}
	p.must(ctx, t, `cp "$SUITE_STATE/config/bundle.yaml" . && kubectl create namespace `+namespace)
	p.must(ctx, t, "until kubectl get serviceaccount default >/dev/null 2>&1; do sleep 0.1; done")
	if _, err := os.Stat(own); err == nil {
		atEnd(ctx, t, func(ctx context.Context) { p.must(ctx, t, ". "+own+"; cleanup") })
		p.must(ctx, t, ". "+own+"; prepare")
	}
	atEnd(ctx, t, func(context.Context) {
		for _, cmd := range p.serving {
			if err := stop(cmd); err != nil {
				t.Errorf("%s: %v\n%s", cmd.Args[len(cmd.Args)-1], err, cmd.Stdout.(*lockedBuffer).Bytes())
			}
		}
		_ = os.Remove(filepath.Join(p.home, "state")) // what follows is of this test, and not of the page
	})
}

// sudo puts a sudo into PATH that copies files, for pages that have a directory in place of this machine's.
func (p *pageRun) sudo(t *testing.T) {
	t.Helper()
	dir := filepath.Join(p.home, "bin")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const script = "#!/bin/sh\ncase $1 in install|cp) exec \"$@\";; esac\necho \"sudo $1: list it as an exception\" >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "sudo"), []byte(script), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	p.path = dir + ":" + p.path
}

// must runs a command of this test.
func (p *pageRun) must(ctx context.Context, t *testing.T, command string) {
	t.Helper()
	if err := p.runCommand(ctx, "set -e\n"+command, 0); err != nil {
		t.Errorf("%s: %v", command, err)
	}
}

// environment is that of the page's commands.
func (p *pageRun) environment() []string {
	env := []string{"HOME=" + p.home, "PATH=" + p.path + ":" + os.Getenv("PATH"), "EDITOR=true"}
	for name, value := range p.facts {
		env = append(env, name+"="+value)
	}
	return env
}

// facts are variables that replacements and the files in testdata/docs use.
func facts(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	free, err := cluster.FreePort(ctx, nil, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]string{
		"REPOSITORY": repository, "FREE_PORT": strconv.Itoa(free),
		"SUITE_STATE": suite.StateDir(suite.Name), "SUITE_CONTEXT": suite.Context(),
	}
	for name, port := range portsOf(t) {
		of["PORT_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))] = strconv.Itoa(port)
	}
	return of
}

// outside is a path that no command of a page may name here, as it may be this machine's.
var outside = regexp.MustCompile(`(^|[\s=:'"])/(etc|root|usr|var|opt|run|boot)(/|\s|$)`)

var (
	background = regexp.MustCompile(`&\s*$`)
	comment    = regexp.MustCompile(`\s+# .*$`)
)

// follow does what the page says: it runs the command, or starts one that serves.
func (p *pageRun) follow(ctx context.Context, command string) error {
	want, here := 0, p.replaced(command)
	for prefix, code := range p.ends {
		if strings.HasPrefix(command, prefix) {
			p.used[prefix], want = true, code
		}
	}
	serves := background.MatchString(command)
	if plain := comment.ReplaceAllString(command, ""); slices.Contains(p.serve, plain) {
		p.used[plain], serves = true, true
	}
	switch {
	case outside.MatchString(here):
		return errors.New("it names a path of this machine: replace that, or list the command as an exception")
	case serves:
		return p.start(ctx, background.ReplaceAllString(here, ""))
	}
	return p.runCommand(ctx, here, want)
}

// runCommand runs a command that has to end with an exit code.
func (p *pageRun) runCommand(ctx context.Context, command string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	state := filepath.Join(p.home, "state")
	cmd := p.bash(ctx, `trap 'code=$?; { export -p; umask -p; printf "cd %q\n" "$PWD"; } > `+state+`; exit $code' EXIT`+"\n"+command)
	err := cmd.Run()
	var exit *exec.ExitError
	if ended := err == nil || errors.As(err, &exit) && ctx.Err() == nil; !ended || cmd.ProcessState.ExitCode() != want {
		return fmt.Errorf("%s, want exit code %d: %w\n%s%s", cmd.ProcessState, want, errors.Join(err, context.Cause(ctx)), cmd.Stdout, cmd.Stderr)
	}
	return nil
}

// start starts a command that serves, and waits until it says something.
func (p *pageRun) start(ctx context.Context, command string) error {
	cmd := p.bash(context.WithoutCancel(ctx), "exec "+command)
	said := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return err
	}
	p.serving = append(p.serving, cmd)
	return harness.Wait(ctx, commandLimit, command+" to say that it serves", func(context.Context) error {
		if len(said.Bytes()) == 0 {
			return errors.New("it is silent")
		}
		return nil
	})
}

var verifies = regexp.MustCompile(`^(?:bin/)?fairlead verify -f (\S+)$`)

// verifiesAgain reports whether a command runs all checks of "fairlead verify" with a bundle for which a page before has run them.
// Most pages end with that command, and most of them with the same bundle.
func (p *pageRun) verifiesAgain(command string) bool {
	here := verifies.FindStringSubmatch(strings.TrimSpace(p.replaced(comment.ReplaceAllString(command, ""))))
	if here == nil {
		return false
	}
	bundle, err := os.ReadFile(filepath.Join(p.dir, here[1]))
	if err != nil {
		return false // the command fails, or is in another directory
	}
	again := p.reader.verified[string(bundle)]
	p.reader.verified[string(bundle)] = true
	return again
}

// stop is Ctrl-C for what serves.
func stop(cmd *exec.Cmd) error {
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		return err
	}
	kill := time.AfterFunc(commandLimit, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer kill.Stop()
	return cmd.Wait()
}

// bash prepares a script with the variables and the directory that earlier commands have left.
func (p *pageRun) bash(ctx context.Context, script string) *exec.Cmd {
	state := filepath.Join(p.home, "state")
	cmd, _, _ := suite.Program(ctx, "bash", "-c", "set -a -o pipefail\n[ ! -f "+state+" ] || . "+state+"\n"+script)
	cmd.Dir, cmd.Env = p.dir, append(cmd.Env, p.environment()...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}
