// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
)

// networkPrograms are what kube-proxy and kindnet call; Debian links them dynamically.
var networkPrograms = []string{"/usr/sbin/xtables-nft-multi", "/usr/sbin/xtables-legacy-multi", "/usr/sbin/nft", "/usr/sbin/conntrack", "/bin/ip"}

// iptablesNames are links to cmd/xtables, which chooses the variant.
var iptablesNames = []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"}

// networkUserland takes the programs, the libraries that they name and iptables' extensions out of the node's own Debian.
func networkUserland(ctx context.Context, c container, xtables string) (imagetar.Layer, error) {
	out, err := c.sh(ctx, "ldd "+strings.Join(networkPrograms, " ")+" /usr/lib/*/xtables/*.so; ls -d /usr/lib/*/xtables/*.so")
	if err != nil {
		return nil, err
	}
	wanted := append(slices.Clone(networkPrograms), libraries(out)...)
	slices.Sort(wanted)
	files, err := c.files(ctx, slices.Compact(wanted))
	if err != nil {
		return nil, err
	}
	files = append(files,
		imagetar.File{Name: "usr/local/bin/xtables", Mode: 0o755, Source: xtables},
		imagetar.File{Name: "run", Mode: dirMode},
		imagetar.File{Name: "tmp", Mode: dirMode | stickyMode | 0o777},
	)
	for _, name := range iptablesNames {
		files = append(files, imagetar.File{Name: "usr/sbin/" + name, Mode: symlinkMode, Link: "../local/bin/xtables"})
	}
	return imagetar.Files(files...)
}

// libraries picks the absolute paths out of ldd's output ("name => /path (0x…)", "/path (0x…)", "/path").
func libraries(ldd string) []string {
	var paths []string
	for line := range strings.Lines(ldd) {
		line = strings.TrimSpace(line)
		if strings.HasSuffix(line, ":") { // the heading of a program's list
			continue
		}
		for word := range strings.FieldsSeq(line) {
			if strings.HasPrefix(word, "/") {
				paths = append(paths, word)
				break
			}
		}
	}
	return paths
}

// files reads files of the container, symbolic links followed.
func (c container) files(ctx context.Context, paths []string) ([]imagetar.File, error) {
	archive, err := c.docker.run(ctx, nil, append([]string{"exec", c.id, "tar", "--create", "--dereference", "--absolute-names"}, paths...)...)
	if err != nil {
		return nil, err
	}
	var files []imagetar.File
	reader := tar.NewReader(strings.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		file := imagetar.File{Name: path.Clean(header.Name), Mode: fs.FileMode(header.Mode & 0o777)}
		if header.Typeflag == tar.TypeLink { // one file under two of the names
			same := slices.IndexFunc(files, func(f imagetar.File) bool { return f.Name == path.Clean(header.Linkname) })
			if same < 0 {
				return nil, fmt.Errorf("%s is a link to %s, which is not there", header.Name, header.Linkname)
			}
			file.Data = files[same].Data
		} else if file.Data, err = io.ReadAll(reader); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	if len(files) != len(paths) {
		return nil, fmt.Errorf("%d of %d files came out of the container", len(files), len(paths))
	}
	return files, nil
}

// file reads one file of the container.
func (c container) file(ctx context.Context, path string) ([]byte, error) {
	files, err := c.files(ctx, []string{path})
	if err != nil {
		return nil, err
	}
	return files[0].Data, nil
}
