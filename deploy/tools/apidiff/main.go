// SPDX-License-Identifier: Apache-2.0

// Command apidiff compares the Go API of this module with that of a base revision:
//
//	go run ./apidiff [-base REVISION] [MODULE_DIRECTORY]
//
// The base is the newest tag v*; without one there is nothing to compare. An incompatible change fails
// unless the section Unreleased of CHANGELOG.md names its package, for example `pkg/install`. Packages
// under internal and commands are no API.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	base := flag.String("base", "", "the revision to compare with (default: the newest tag v*)")
	flag.Parse()
	dir := "../.."
	if flag.NArg() > 0 {
		dir = flag.Arg(0)
	}
	if err := run(context.Background(), dir, *base, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "apidiff:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, base string, out io.Writer) error {
	if base == "" {
		tags, err := git(ctx, dir, "tag", "--merged", "HEAD", "--sort=-version:refname", "--list", "v*")
		if err != nil {
			return err
		}
		if base, _, _ = strings.Cut(tags, "\n"); base == "" {
			fmt.Fprintln(out, "apidiff: no release yet, so that there is no API to compare with")
			return nil
		}
	}
	reports, err := compare(ctx, dir, base)
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile(filepath.Join(dir, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	var unnamed []string
	for _, r := range reports {
		fmt.Fprintf(out, "%s, incompatible with %s:\n", r.pkg, base)
		for _, change := range r.incompatible {
			fmt.Fprintln(out, "  "+change)
		}
		if !named(string(changelog), r.pkg) {
			unnamed = append(unnamed, r.pkg)
		}
	}
	if len(unnamed) > 0 {
		return fmt.Errorf("incompatible changes of %s: keep the API, or say in the section Unreleased of CHANGELOG.md what users of the package have to change, and name it as `%s`",
			strings.Join(unnamed, ", "), unnamed[0])
	}
	return nil
}

// named says if the section Unreleased has the package's name, in code quotes.
func named(changelog, pkg string) bool {
	_, section, _ := strings.Cut(changelog, "\n## Unreleased")
	section, _, _ = strings.Cut(section, "\n## ")
	return strings.Contains(section, "`"+pkg+"`")
}

// git returns what the command prints.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("git %s: %s", strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}
