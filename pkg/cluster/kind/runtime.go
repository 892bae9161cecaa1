// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/distribution/reference"
	kindcluster "sigs.k8s.io/kind/pkg/cluster"
)

var (
	// ErrNoRuntime is returned if no container runtime is installed.
	ErrNoRuntime = errors.New("no container runtime found")
	// ErrRuntimeDown is returned if the container runtime does not answer.
	ErrRuntimeDown = errors.New("the container runtime does not answer")
	// ErrRuntimeDenied is returned if this user may not use the container
	// runtime.
	ErrRuntimeDenied = errors.New("not allowed to use the container runtime")
)

// runtime is the container runtime that kind uses, identified by its command.
// kind's library runs the same command, but does not expose what it detected.
type runtime struct {
	// command is docker, podman, nerdctl, or another name of nerdctl.
	command string
}

// runtimeVariable is the environment variable by which users of kind choose the
// runtime; fairlead respects it as well.
const runtimeVariable = "KIND_EXPERIMENTAL_PROVIDER"

const embeddedInstead = "or use a cluster that needs none: \"fairlead up --provider embedded\""

// findRuntime returns the runtime that kind would use: the one that the
// environment names, or else the first that is installed.
func findRuntime(ctx context.Context) (*runtime, error) {
	switch asked := os.Getenv(runtimeVariable); asked {
	case "":
	case "docker", "podman", "nerdctl", "finch", "nerdctl.lima":
		if _, err := exec.LookPath(asked); err != nil {
			return nil, fmt.Errorf("%w: %s is %s, which is not in PATH: install it, unset the variable, %s", ErrNoRuntime, runtimeVariable, asked, embeddedInstead)
		}
		return &runtime{command: asked}, nil
	default:
		return nil, fmt.Errorf("%w: %s is %q: choose docker, podman or nerdctl", ErrNoRuntime, runtimeVariable, asked)
	}
	for _, command := range []string{"docker", "nerdctl", "finch", "podman"} {
		if _, err := exec.LookPath(command); err == nil && !emulated(ctx, command) {
			return &runtime{command: command}, nil
		}
	}
	return nil, fmt.Errorf("%w: neither docker, nerdctl nor podman is in PATH: install one, %s", ErrNoRuntime, embeddedInstead)
}

// emulated reports whether docker is the command of package podman-docker: then
// kind must be configured for Podman.
func emulated(ctx context.Context, command string) bool {
	if command != "docker" {
		return false
	}
	out, err := exec.CommandContext(ctx, command, "-v").Output()
	return err == nil && strings.HasPrefix(string(out), "podman version")
}

// imageName returns the image name to pass to the runtime. Podman, as
// distributions configure it, accepts no short names of images that it would have
// to pull, and never a tag together with a digest; kind's library passes it the
// same names.
func (r *runtime) imageName(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil || r.command != "podman" {
		return image
	}
	if c, ok := named.(reference.Canonical); ok {
		return reference.TrimNamed(named).Name() + "@" + c.Digest().String()
	}
	return reference.TagNameOnly(named).String()
}

// kind returns kind's library for the same runtime.
func (r *runtime) kind(logger *logger) *kindcluster.Provider {
	option := kindcluster.ProviderWithNerdctl(r.command)
	switch r.command {
	case "docker":
		option = kindcluster.ProviderWithDocker()
	case "podman":
		option = kindcluster.ProviderWithPodman()
	}
	return kindcluster.NewProvider(option, kindcluster.ProviderWithLogger(logger))
}

// commandError is the error of a failed command, with its output.
type commandError struct {
	command string
	said    string
	err     error
}

func (e *commandError) Error() string {
	if e.said == "" {
		return fmt.Sprintf("%s: %v", e.command, e.err)
	}
	return fmt.Sprintf("%s: %s", e.command, e.said)
}

func (e *commandError) Unwrap() error { return e.err }

// run runs one command of the runtime and returns its output.
func (r *runtime) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, r.command, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return "", &commandError{command: r.command + " " + strings.Join(args[:min(2, len(args))], " "), said: strings.TrimSpace(stderr.String()), err: err}
	}
	return strings.TrimSpace(stdout.String()), nil
}

// ping checks that the runtime answers this user.
func (r *runtime) ping(ctx context.Context) error {
	_, err := r.run(ctx, "info")
	if err == nil || ctx.Err() != nil {
		return err
	}
	lower := strings.ToLower(err.Error())
	for _, denied := range []string{"permission denied", "access denied", "operation not permitted"} {
		if strings.Contains(lower, denied) {
			return fmt.Errorf("%w: %w: %s, %s", ErrRuntimeDenied, err, r.remedy().denied, embeddedInstead)
		}
	}
	return fmt.Errorf("%w: %w: %s, %s", ErrRuntimeDown, err, r.remedy().down, embeddedInstead)
}

// remedy is what to do about a runtime that does not answer, or that denies this
// user access.
type remedy struct{ down, denied string }

func (r *runtime) remedy() remedy {
	switch r.command {
	case "docker":
		return remedy{
			`start it ("sudo systemctl start docker"), or set DOCKER_HOST to where it listens`,
			`add yourself to the group that may ("sudo usermod -aG docker $USER", then log in again)`,
		}
	case "podman":
		return remedy{
			`make "podman info" work (where Podman needs a virtual machine: "podman machine start")`,
			"run this as root, or set Podman up for users without root",
		}
	}
	return remedy{
		`start it ("sudo systemctl start containerd", or without root "containerd-rootless-setuptool.sh install")`,
		"run this as root, or set containerd up for users without root",
	}
}
