// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/components"
	"github.com/fairlead-dev/fairlead/pkg/imagetar"
	"github.com/fairlead-dev/fairlead/pkg/nodeimage"
)

// stageRepository holds the stages; their tags say what went into them.
const stageRepository = "fairlead-dev/kind-node-stage"

// stage is an image on the way to the node image.
type stage struct {
	name  string
	tag   string
	build func(ctx context.Context, below, tag string) error
}

// Where the sources of the stages are, seen from the repository's root.
const (
	moduleDir   = "e2e/offline"
	sourceDir   = moduleDir + "/nodeimage"
	programsDir = sourceDir + "/programs"
)

// sources lists the files and directories of this repository that build a stage or become part of it. Files in none
// of the lists do not affect the content of an image.
var sources = map[string][]string{
	"debian": {sourceDir + "/debian.go", sourceDir + "/kindfiles.go", "pkg/imagetar/layer.go", "pkg/imagetar/image.go"},
	"kubernetes": {
		sourceDir + "/kubernetes.go", sourceDir + "/images.go", sourceDir + "/container.go", sourceDir + "/userland.go", sourceDir + "/manifests.go",
		sourceDir + "/shell.go", sourceDir + "/cmd/kindnet", sourceDir + "/cmd/pause", sourceDir + "/cmd/podtest", sourceDir + "/cmd/xtables", programsDir,
		"pkg/imagetar/program.go", "pkg/fsutil",
	},
	"project": {sourceDir + "/project.go"},
	"balancer": {
		sourceDir + "/balancer.go", sourceDir + "/shell.go", sourceDir + "/cmd/envoy",
		"pkg/imagetar/layer.go", "pkg/imagetar/image.go", "pkg/imagetar/program.go",
	},
}

// constants are the values that the sources use from other packages of this repository.
var constants = map[string][]string{
	"kubernetes": {check.DefaultPauseImage, check.DefaultProbeImage, nodeimage.PodImage},
	"project":    {nodeimage.ImageList},
}

// inputs are the other inputs of the stages, including the images of this project.
func (b *builder) inputs(project []*imagetar.Image) map[string][]string {
	inputs := map[string][]string{
		"debian":     {b.mirror, suite, b.kindDir},
		"kubernetes": {components.Key(), runtime.Version()},
		"balancer":   {components.Key(), runtime.Version()},
	}
	for _, img := range project {
		inputs["project"] = append(inputs["project"], img.Name(), img.ID())
	}
	for name, values := range constants {
		inputs[name] = append(inputs[name], values...)
	}
	return inputs
}

// stages computes the tags, which are the cache keys.
func (b *builder) stages(_ context.Context) ([]stage, error) {
	stages := []stage{
		{name: "debian", build: b.buildDebian},
		{name: "kubernetes", build: b.buildKubernetes},
		{name: "project", build: b.buildProject},
	}
	project, err := imagetar.Project(b.binDir)
	if err != nil {
		return nil, err
	}
	inputs := b.inputs(project)
	below := ""
	for i := range stages {
		name := stages[i].name
		key, err := stageKey(".", append([]string{below, runtime.GOARCH}, inputs[name]...), sources[name])
		if err != nil {
			return nil, err
		}
		below = key
		stages[i].tag = fmt.Sprintf("%s:%s-%s", stageRepository, name, key)
	}
	return stages, nil
}

// stageKey hashes strings and the content of files; tests, which build nothing, are left out.
func stageKey(root string, inputs, sources []string) (string, error) {
	hash := sha256.New()
	field := func(text string) { fmt.Fprintf(hash, "%d:%s", len(text), text) }
	for _, input := range inputs {
		field(input)
	}
	for _, source := range slices.Sorted(slices.Values(sources)) {
		err := filepath.WalkDir(filepath.Join(root, source), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, path)
			field(rel)
			field(string(data))
			return err
		})
		if err != nil {
			return "", fmt.Errorf("%w (run this in the repository's root)", err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}
