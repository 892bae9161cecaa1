// SPDX-License-Identifier: Apache-2.0

// Command dockerd starts a private Docker daemon where none answers, for a machine that has root and Debian's packages
// but no Docker:
//
//	eval "$(go -C e2e/offline run ./dockerd start)"    # sets DOCKER_HOST, which docker, kind and fairlead honor
//	go -C e2e/offline run ./dockerd stop               # ends just this daemon and its containers
//	go -C e2e/offline run ./dockerd run -- docker ps   # both around one command; its exit code is the result
//
// -dir says where everything of the daemon lives. A daemon that answers already, at DOCKER_HOST or the default socket,
// is used as it is and never stopped. See package daemon.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/interrupt"
	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/e2e/offline/dockerd/daemon"
	"github.com/fairlead-dev/fairlead/e2e/offline/dockerd/runtime"
)

const usage = `usage: dockerd start [-dir DIR] [-always]
       dockerd run [-dir DIR] [-always] -- COMMAND [ARG ...]
       dockerd stop [-dir DIR] [-purge]`

func main() {
	if filepath.Base(os.Args[0]) == runtime.Name { // dockerd calls this program as its runtime
		fmt.Fprintln(os.Stderr, runtime.Main(os.Args))
		os.Exit(1)
	}
	ctx, stop := interrupt.Context(context.Background())
	defer stop()
	err := run(ctx, os.Args[1:])
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit): // the command has said what is wrong
		os.Exit(max(1, exit.ExitCode()))
	default:
		fmt.Fprintln(os.Stderr, "dockerd:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	o := daemon.Options{Log: os.Stderr}
	flags := flag.NewFlagSet("dockerd "+args[0], flag.ExitOnError)
	flags.Usage = func() { fmt.Fprintln(os.Stderr, usage) }
	flags.StringVar(&o.Dir, "dir", daemon.DefaultDir, "everything of the daemon lives here")
	flags.BoolVar(&o.Always, "always", false, "start it though another daemon answers")
	purge := flags.Bool("purge", false, "remove images, networks and the directory too")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch {
	case args[0] == "start" && flags.NArg() == 0:
		found, err := daemon.Start(ctx, o)
		if err == nil && found.Host != "" {
			fmt.Printf("export DOCKER_HOST=%s\n", found.Host)
		}
		return err
	case args[0] == "stop" && flags.NArg() == 0:
		return daemon.Stop(ctx, o, *purge)
	case args[0] == "run" && flags.NArg() > 0:
		return around(ctx, o, flags.Args())
	}
	return errors.New(usage)
}

// around runs a command with a daemon, and stops the daemon if it was started for it.
func around(ctx context.Context, o daemon.Options, command []string) error {
	found, err := daemon.Start(ctx, o)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// A signal to end goes to every process that the command started, and they get time to clean up. On Ctrl-C a terminal
	// signals them all itself, and it would not let another process group read from it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !terminal(os.Stdin)}
	cmd.Cancel = func() error {
		if cmd.SysProcAttr.Setpgid {
			return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		}
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.WaitDelay = 2 * time.Minute
	if found.Host != "" {
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+found.Host)
	}
	err = cmd.Run()
	if found.Started {
		err = errors.Join(err, daemon.Stop(context.WithoutCancel(ctx), o, false))
	}
	return err
}

func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
