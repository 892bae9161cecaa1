// SPDX-License-Identifier: Apache-2.0

// Package sysdump is the command "fairlead sysdump".
package sysdump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cli/bundleflag"
	"github.com/fairlead-dev/fairlead/pkg/cli/checkcmd"
	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/sysdump"
)

type options struct {
	streams          genericiooptions.IOStreams
	cluster          clusterflags.Flags
	source           check.EnvSource
	filename, output string
	maxSize, logSize string
	timeout          time.Duration
	dump             sysdump.Options
}

// NewCommand makes the command. The source knows local clusters.
func NewCommand(streams genericiooptions.IOStreams, source check.EnvSource) *cobra.Command {
	o := &options{streams: streams, cluster: clusterflags.New(), source: source}
	cmd := &cobra.Command{
		Use: "sysdump", Short: "Collect what support needs into one archive, without secrets", GroupID: "bundle",
		Long: `Collect what others need to find a fault into one archive (tar.gz): check results,
status, objects, logs, metrics and configurations of the tunnel and the second
scheduler, and a list of what could not be collected and why.

Only fields on a list are collected, and never a Secret. Credentials in logs and
messages are redacted. Look into the archive before you send it all the same:
it has names and addresses of your cluster.

Exit code: 0 the archive is written, also if something could not be collected;
1 it could not be written, 2 wrong usage.`,
		Example: `  fairlead sysdump                                # fairlead-sysdump-<context>-<time>.tar.gz
  fairlead sysdump -o /tmp/dump.tar.gz --timeout 30s --max-size 20Mi
  fairlead sysdump -o - | tar -tz                 # what is in it
  sudo fairlead sysdump                           # on a control plane node: also its files`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	o.cluster.AddFlags(f)
	bundleflag.Add(f, &o.filename, bundleflag.Created)
	f.StringVarP(&o.output, "output", "o", "", `file to write, which must not exist; "-" is standard output (default: a name with the context and the time)`)
	f.StringVar(&o.maxSize, "max-size", "64Mi", "maximum size of the archive before compression")
	f.StringVar(&o.logSize, "log-size", "1Mi", "maximum size of each log; older lines are left out")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "time limit; the archive then has what was collected until then")
	f.IntVar(&o.dump.Agents, "agents", sysdump.DefaultAgents, "number of agents whose logs are collected, those that are not ready first")
	return cmd
}

func (o *options) validate() error {
	for _, size := range []struct {
		flag, text string
		to         *int64
	}{{"max-size", o.maxSize, &o.dump.MaxSize}, {"log-size", o.logSize, &o.dump.LogSize}} {
		q, err := resource.ParseQuantity(size.text)
		if err != nil || q.Value() <= 0 {
			return fmt.Errorf("--%s %q: must be a size above 0, such as 64Mi", size.flag, size.text)
		}
		*size.to = q.Value()
	}
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout %s: must be more than 0", o.timeout)
	}
	if o.dump.Agents < 0 {
		return fmt.Errorf("--agents %d: must not be negative", o.dump.Agents)
	}
	return nil
}

func (o *options) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return &checkcmd.Error{Code: 2, Err: err}
	}
	target, err := checkcmd.Target(ctx, o.cluster, o.source, o.filename, o.streams.In, o.streams.ErrOut)
	if err != nil {
		return &checkcmd.Error{Code: 2, Err: err}
	}
	// A part that hangs must leave time for the others, and for logs.
	target.Limit = min(observe.ProbeLimit, o.timeout/4)
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	name := o.output
	if name == "" {
		name = fmt.Sprintf("fairlead-sysdump-%s-%s.tar.gz", plain(target.Context), time.Now().UTC().Format("20060102-150405"))
	}
	var manifest sysdump.Manifest
	write := func(out io.Writer) error {
		manifest, err = sysdump.Write(limited, target, out, o.dump)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	if name == "-" {
		return write(o.streams.Out)
	}
	if err := toFile(name, write); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(o.streams.ErrOut, "Wrote %s: %d files.\n", name, len(manifest.Files))
	for _, m := range manifest.Missing {
		_, _ = fmt.Fprintf(o.streams.ErrOut, " - without %s: %s\n", m.What, strings.ReplaceAll(m.Reason, "\n", "\n   "))
	}
	return nil
}

// plain makes a file name of a context's name.
func plain(context string) string {
	out := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, context)
	if out == "" {
		return "cluster"
	}
	return out
}

// toFile writes a file that only its owner can read. It is there whole or not at all, and an existing one stays.
func toFile(name string, write func(io.Writer) error) error {
	if _, err := os.Lstat(name); err == nil {
		return &checkcmd.Error{Code: 2, Err: fmt.Errorf("--output %s: the file exists: name another one", name)}
	}
	part, err := os.CreateTemp(filepath.Dir(name), ".fairlead-sysdump-*")
	if err != nil {
		return fmt.Errorf("--output %s: %w", name, err)
	}
	if err := write(part); err != nil {
		return errors.Join(err, part.Close(), os.Remove(part.Name()))
	}
	if err := part.Close(); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(part.Name()))
	}
	if err := place(part.Name(), name, os.Link); err != nil {
		return fmt.Errorf("--output %s: %w: the archive is in %s", name, err, part.Name())
	}
	return os.Remove(part.Name())
}

// place gives a complete file its name, unless there is a file of that name by now. A rename would replace that one, a link does not. Some file systems
// have no links: FAT, and some of networks.
func place(part, name string, link func(from, to string) error) error {
	linkErr := link(part, name)
	if linkErr == nil || errors.Is(linkErr, fs.ErrExist) {
		return linkErr
	}
	from, err := os.Open(part)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}
