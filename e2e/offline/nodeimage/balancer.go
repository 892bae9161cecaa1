// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
)

// standInLabel marks our load balancer image. The one from a registry does not have it and is never replaced.
const standInLabel = "fairlead.dev/stands-in-for"

// balancer puts an image into Docker under the name of the load balancer that kind runs in front of several control
// planes, if there is none: kind would take it from a registry.
func (b *builder) balancer(ctx context.Context, programs func(context.Context) (string, []byte, error)) error {
	name, err := balancerImage(b.kindDir)
	if err != nil {
		return err
	}
	label, err := b.docker.run(ctx, nil, "image", "inspect", "--format", `{{index .Config.Labels "`+standInLabel+`"}}`, name)
	if err == nil && strings.TrimSpace(label) == "" {
		return nil // the real one
	}
	want, keyErr := stageKey(".", append([]string{name, runtime.GOARCH}, b.inputs(nil)["balancer"]...), sources["balancer"])
	if keyErr != nil {
		return keyErr
	}
	if err == nil && strings.TrimSpace(label) == want {
		return nil
	}
	return b.step("Making a load balancer for several control planes", func() error {
		binary, busybox, err := programs(ctx)
		if err != nil {
			return err
		}
		img, err := balancerOf(name, want, binary, busybox)
		if err != nil {
			return err
		}
		return b.load(ctx, img)
	})
}

func balancerOf(name, key, binary string, busybox []byte) (*imagetar.Image, error) {
	const program = "/usr/local/bin/envoy"
	files := append(shell(busybox),
		imagetar.File{Name: "bin/bash", Mode: symlinkMode, Link: program},
		imagetar.File{Name: "home/envoy", Mode: dirMode},
		imagetar.File{Name: "tmp", Mode: dirMode | stickyMode | 0o777})
	return imagetar.Program(imagetar.Config{Name: name, Cmd: []string{"envoy"}, Labels: map[string]string{standInLabel: key}}, program, binary, files...)
}

// balancerPrograms builds the balancer and takes busybox out of the node image.
func (b *builder) balancerPrograms(ctx context.Context, node string) (binary string, busybox []byte, err error) {
	binary = filepath.Join(b.workDir, "programs", "envoy")
	if _, err := goTool(ctx, moduleDir, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, "./nodeimage/cmd/envoy"); err != nil {
		return "", nil, err
	}
	busybox, err = exec.CommandContext(ctx, "docker", "run", "--rm", "--network=none", "--entrypoint=cat", node, "/bin/busybox").Output()
	return binary, busybox, err
}

// balancerImage reads the name out of kind's source, where it is a constant of an internal package.
func balancerImage(kindDir string) (string, error) {
	file := filepath.Join(kindDir, "pkg/cluster/internal/loadbalancer/const.go")
	source, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		return "", fmt.Errorf("kind's load balancer: %w", err)
	}
	var name string
	ast.Inspect(source, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Names[0].Name == "Image" && len(spec.Values) == 1 {
			if value, ok := spec.Values[0].(*ast.BasicLit); ok {
				name, err = strconv.Unquote(value.Value)
			}
		}
		return true
	})
	if name == "" && err == nil {
		err = errors.New("it has no constant Image any more")
	}
	if err != nil {
		return "", fmt.Errorf("kind's load balancer: %s: %w", file, err)
	}
	return name, nil
}
